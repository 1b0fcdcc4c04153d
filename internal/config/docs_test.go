package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/config.md and docs/config.schema.json anew")

const (
	schemaFile    = "../../docs/config.schema.json"
	referenceFile = "../../docs/config.md"
)

// TestDocsAreCurrent compares the generated documents with those in docs/.
func TestDocsAreCurrent(t *testing.T) {
	schema := configSchema(t)
	data, err := json.MarshalIndent(schema, "", "  ")
	require.NoError(t, err)
	for file, want := range map[string][]byte{schemaFile: append(data, '\n'), referenceFile: reference(t, schema)} {
		if *update {
			require.NoError(t, os.WriteFile(file, want, 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err, "make it with: go test ./internal/config -update")
		assert.Equal(t, string(want), string(got), "%s is stale: go test ./internal/config -update", file)
	}
}

// TestReferenceExamples parses what the reference shows, and asks the schema too.
func TestReferenceExamples(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```(yaml|json)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 3)
	servers := 0
	for _, b := range blocks {
		c, _, err := Parse("config.md."+b[1], []byte(b[2]), testEnv("WEATHER_TOKEN", "t"))
		require.NoError(t, err, b[2])
		servers += len(c.Servers)
	}
	assert.Equal(t, 3, servers)
}

// TestSchemaAgrees gives the schema what the parser takes and refuses.
func TestSchemaAgrees(t *testing.T) {
	f, err := os.Open(schemaFile)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // nothing was written
	doc, err := validator.UnmarshalJSON(f)
	require.NoError(t, err)
	compiler := validator.NewCompiler()
	require.NoError(t, compiler.AddResource("config.schema.json", doc))
	schema, err := compiler.Compile("config.schema.json")
	require.NoError(t, err)
	for file, good := range map[string]bool{
		`{}`: true,
		`{"bodyLimit":4096,"sessions":{"lifetime":"1h"},"servers":[{"name":"a","url":"http://h/","prefix":"","headers":{"A":"b"},"labels":{"a":"b"},"way":"auto","timeout":"1m30s"}]}`: true,
		`{"bodyLimit":"4MiB","virtualServers":[{"name":"ns/x","tools":["a"]}]}`:                                                                                                        true,
		`{"nope":1}`:        false,
		`{"bodyLimit":[]}`:  false,
		`{"servers":[{}]}`:  false,
		`{"servers":[1]}`:   false,
		`{"listen":1}`:      false,
		`{"tls":{"x":"y"}}`: false,
		`{"servers":[{"name":"A","url":"http://h/"}]}`:                 false,
		`{"servers":[{"name":"a","url":"http://h/","timeout":"1 s"}]}`: false,
		`{"servers":[{"name":"a","url":"http://h/","way":"x"}]}`:       false,
		`{"sessions":{"store":"redis"}}`:                               false,
	} {
		value, err := validator.UnmarshalJSON(strings.NewReader(file))
		require.NoError(t, err)
		assert.Equal(t, good, schema.Validate(value) == nil, "the schema: %s", file)
		_, _, err = Parse("f.json", []byte(file), testEnv())
		assert.Equal(t, good, err == nil, "the parser: %s: %v", file, err)
	}
}

// configSchema generates the schema from the types, with their comments and
// defaults.
func configSchema(t *testing.T) *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, Mapper: func(t reflect.Type) *jsonschema.Schema {
		if t == reflect.TypeFor[Duration]() {
			return &jsonschema.Schema{Type: "string", Pattern: `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`}
		}
		return nil
	}}
	require.NoError(t, r.AddGoComments("patchbay.dev/internal/config", ".", jsonschema.WithFullComment()))
	for i, text := range r.CommentMap {
		r.CommentMap[i] = strings.ReplaceAll(text, "\n", " ")
	}
	schema := r.Reflect(&Config{})
	schema.Title = "patchbay.yaml"
	withDefaults(schema.Definitions["Config"], reflect.ValueOf(*defaults(func(string) (string, bool) { return "", false })))
	withDefaults(schema.Definitions["Sessions"], reflect.ValueOf(defaults(testEnv()).Sessions))
	withDefaults(schema.Definitions["Calls"], reflect.ValueOf(defaults(testEnv()).Calls))
	withDefaults(schema.Definitions["Server"], reflect.ValueOf(Server{Way: WayAuto, Poll: Duration(defaultPoll)}))
	for _, def := range schema.Definitions {
		for p := def.Properties.Oldest(); p != nil; p = p.Next() {
			p.Value.Description = describe(p.Key, p.Value.Description)
		}
	}
	return schema
}

// describe begins the description of a key with the key instead of the name of
// the Go field: "BodyLimit is" becomes "bodyLimit is".
func describe(key, text string) string {
	field, rest, _ := strings.Cut(text, " ")
	if strings.EqualFold(field, key) {
		return key + " " + rest
	}
	return text
}

func withDefaults(def *jsonschema.Schema, v reflect.Value) {
	for _, f := range structFields(v.Type()) {
		switch value := v.Field(f.index).Interface().(type) {
		case string:
			if value != "" {
				property(def, f.key).Default = value
			}
		case Way:
			property(def, f.key).Default = string(value)
		case int64:
			property(def, f.key).Default = value
		case bool:
			property(def, f.key).Default = value
		case Duration:
			if value != 0 {
				property(def, f.key).Default = strings.Replace(strings.Replace(time.Duration(value).String(), "m0s", "m", 1), "h0m", "h", 1)
			}
		}
	}
}

func property(def *jsonschema.Schema, key string) *jsonschema.Schema {
	p, _ := def.Properties.Get(key)
	return p
}

type docKey struct{ Name, Type, Default, Description string }

type docType struct {
	Title, Description string
	Keys               []docKey
}

// reference renders testdata/config.md.tmpl with one table for each type.
func reference(t *testing.T, schema *jsonschema.Schema) []byte {
	tables := []docType{
		{Title: "The file", Description: "All keys are optional."},
		{Title: "tls"},
		{Title: "sessions"},
		{Title: "calls"},
		{Title: "servers[]"},
		{Title: "servers[].tls"},
		{Title: "virtualServers[]"},
	}
	for i, name := range []string{"Config", "ListenerTLS", "Sessions", "Calls", "Server", "ServerTLS", "VirtualServer"} {
		def := schema.Definitions[name]
		require.NotNil(t, def, name)
		if i > 0 {
			tables[i].Description = strings.Replace(def.Description, name, "`"+tables[i].Title+"`", 1)
		}
		for p := def.Properties.Oldest(); p != nil; p = p.Next() {
			tables[i].Keys = append(tables[i].Keys, tableRow(p.Key, p.Value, slices.Contains(def.Required, p.Key)))
		}
	}
	require.Len(t, schema.Definitions, len(tables), "a type without a table")
	var out bytes.Buffer
	tmpl := template.Must(template.ParseFiles("testdata/config.md.tmpl"))
	require.NoError(t, tmpl.Execute(&out, tables))
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
}

func tableRow(key string, s *jsonschema.Schema, required bool) docKey {
	row := docKey{Name: key, Type: s.Type, Description: strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s.Description)}
	switch {
	case s.Ref != "":
		row.Type = "mapping"
	case s.Type == "object":
		row.Type = "mapping of strings"
	case s.Type == "array":
		row.Type = "list"
	case len(s.OneOf) > 0:
		row.Type = "size"
	case strings.Contains(s.Pattern, "ms|s|m|h"):
		row.Type = "duration"
	}
	if s.Default != nil {
		row.Default = fmt.Sprintf("`%v`", s.Default)
	}
	if required {
		row.Default = "required"
	}
	// Words of the reference that are code.
	row.Description = regexp.MustCompile(`^`+regexp.QuoteMeta(key)+` `).ReplaceAllString(row.Description, "`"+key+"` ")
	return row
}
