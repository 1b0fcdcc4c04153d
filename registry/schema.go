package registry

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaURL is the base of every schema that is compiled here.
const schemaURL = "patchbay:///inputSchema"

var errRemoteRef = errors.New("references to other documents are not followed")

// noLoader refuses every reference to another document, so that a backend
// cannot make the gateway open files or connections.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errRemoteRef }

// checkSchema tells in words what is wrong with a tool's inputSchema (MCP
// 2025-11-25, Tools: a JSON Schema object of type "object", 2020-12 where it
// does not say otherwise), or returns "".
func checkSchema(raw []byte) string {
	if len(raw) == 0 {
		return "missing"
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return "not JSON"
	}
	obj, ok := doc.(map[string]any)
	if !ok {
		return "not an object"
	}
	if typ, ok := obj["type"]; !ok || typ != "object" {
		return `"type" is not "object"`
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return err.Error()
	}
	if _, err := c.Compile(schemaURL); err != nil {
		var invalid *jsonschema.SchemaValidationError
		if errors.As(err, &invalid) {
			return fmt.Sprintf("not a valid JSON Schema: %.300v", invalid.Err)
		}
		return fmt.Sprintf("%.300v", err)
	}
	return ""
}
