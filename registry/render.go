package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
)

// ServerMetaKey is the key in a listed item's _meta that names its server.
const ServerMetaKey = "patchbay.dev/server"

// Limits on one item of a backend's list.
const (
	maxNameLength    = 128 // MCP 2025-11-25, Tools, "Tool Names"
	warnNameLength   = 64  // what many clients and model APIs accept
	maxItemBytes     = 256 << 10
	maxURILength     = 8 << 10
	nameRule         = "A-Z, a-z, 0-9, _, - and ., at most 128 characters"
	messageTooLarge  = "the definition is over 256 KiB"
	messageDuplicate = "the server lists this name twice; the first is used"
)

// keyTemplate is the member that names a resource template.
const keyTemplate = "uriTemplate"

// rendered is one server's catalog made ready for merging.
type rendered struct {
	tools, prompts, resources, templates []item
	problems                             []Problem
	logs                                 bool // the server declared logging
}

// item is one definition under the name that clients use, conflicts aside.
type item struct {
	original, final string
	raw, listed     []byte
	name            jsonrpc.Span // of the name's value within listed
	template        *template    // of a template, else nil
}

// renamed returns the listed bytes under another name.
func (it *item) renamed(name string) []byte {
	return jsonrpc.AppendSplice(nil, it.listed, it.name, name)
}

// renderer collects one server's items and what is wrong with them.
type renderer struct {
	cfg *config.Server
	out rendered
}

// render makes a catalog ready for merging. old is what was rendered before under
// the same prefix, or nil: what did not change is taken from it, because checking
// a schema takes 0.1 ms.
func render(cfg *config.Server, c *Catalog, old *rendered) *rendered {
	if old == nil {
		old = &rendered{}
	}
	r := &renderer{cfg: cfg}
	r.out.logs = Logs(c.Capabilities)
	r.out.tools = r.each(c.Tools, old.tools, "name", r.toolName, true)
	r.out.prompts = r.each(c.Prompts, old.prompts, "name", r.toolName, false)
	r.out.resources = r.each(c.Resources, old.resources, "uri", r.uri, false)
	r.out.templates = r.each(c.Templates, old.templates, keyTemplate, r.uri, false)
	return &r.out
}

// Logs tells whether the capabilities of an InitializeResult have logging.
func Logs(capabilities []byte) bool {
	var c struct {
		Logging *struct{} `json:"logging"`
	}
	return json.Unmarshal(capabilities, &c) == nil && c.Logging != nil
}

func (r *renderer) each(in []Item, old []item, key string, final func(string) (string, string), tool bool) []item {
	out := make([]item, 0, len(in))
	seen := make(map[string]bool, len(in))
	known := make(map[string]*item, len(old))
	for i := range old {
		known[old[i].original] = &old[i]
	}
	for _, i := range in {
		var it item
		var reason Reason
		var msg string
		if same := known[i.Name]; same != nil && bytes.Equal(same.raw, i.Raw) {
			it = *same
		} else {
			it, reason, msg = r.one(i, key, final, tool)
		}
		if reason == ReasonNone && seen[i.Name] {
			reason, msg = ReasonToolNameConflict, messageDuplicate
		}
		if reason != ReasonNone {
			r.problem(i.Name, reason, msg, true)
			continue
		}
		seen[i.Name] = true
		if (tool || key == "name") && len(it.final) > warnNameLength {
			r.problem(i.Name, ReasonNameInvalid,
				fmt.Sprintf("%q is over 64 characters, which some clients refuse; a shorter prefix helps", it.final), false)
		}
		out = append(out, it)
	}
	return out
}

func (r *renderer) problem(name string, reason Reason, msg string, dropped bool) {
	if len(name) > 2*maxNameLength {
		name = name[:2*maxNameLength] + "…"
	}
	r.out.problems = append(r.out.problems, Problem{
		Server: r.cfg.Name, Item: name, Reason: reason, Message: msg, Dropped: dropped,
	})
}

// toolName and uri return the final name, or why there is none.
func (r *renderer) toolName(name string) (string, string) {
	final := r.cfg.ToolPrefix() + name
	return final, checkName(final)
}

func (r *renderer) uri(uri string) (string, string) {
	switch {
	case uri == "" || !strings.Contains(uri, ":"):
		return "", "the URI has no scheme"
	case len(uri) > maxURILength:
		return "", "the URI is over 8 KiB"
	case r.cfg.ToolPrefix() == "":
		return uri, ""
	}
	// As clients ask for it: the router takes no longer one.
	if uri = mcp.QualifyURI(r.cfg.Name, uri); len(uri) > maxURILength {
		return "", "the URI with the server in front is over 8 KiB"
	}
	return uri, ""
}

func checkName(name string) string {
	ok := name != "" && len(name) <= maxNameLength
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("the name %.140q is not made of %s", name, nameRule)
}

// one checks and renders one item.
func (r *renderer) one(in Item, key string, final func(string) (string, string), tool bool) (item, Reason, string) {
	it := item{original: in.Name, raw: in.Raw}
	if len(in.Raw) > maxItemBytes {
		return it, ReasonLimitExceeded, messageTooLarge
	}
	var msg string
	if it.final, msg = final(in.Name); msg != "" {
		return it, ReasonNameInvalid, msg
	}
	var f members
	if err := f.scan(in.Raw, key); err != nil {
		return it, ReasonSchemaInvalid, err.Error()
	}
	if tool {
		if msg := checkSchema(f.inputSchema.Of(in.Raw)); msg != "" {
			return it, ReasonSchemaInvalid, "inputSchema: " + msg
		}
	}
	if key == keyTemplate {
		it.template = newTemplate(in.Name)
	}
	it.listed, it.name = f.listed(in.Raw, it.final, r.cfg.Name, tool)
	return it, ReasonNone, ""
}

// members are the members of a definition that the gateway looks at.
type members struct {
	name, meta, inputSchema jsonrpc.Span
	metaServer              jsonrpc.Span // value of ServerMetaKey within meta
	metaEmpty, described    bool
	end                     int // of the closing brace
}

func (f *members) scan(raw []byte, key string) error {
	err := jsonrpc.Fields(raw, func(name string, _, value jsonrpc.Span) bool {
		switch name {
		case key:
			f.name = value
		case "_meta":
			f.meta = value
		case "inputSchema":
			f.inputSchema = value
		case "description":
			f.described = true
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if !f.name.Present() {
		return fmt.Errorf("%q is missing", key)
	}
	f.end = bytes.LastIndexByte(raw, '}')
	if !f.meta.Present() {
		return nil
	}
	f.metaEmpty = true
	err = jsonrpc.Fields(f.meta.Of(raw), func(name string, _, value jsonrpc.Span) bool {
		f.metaEmpty = false
		if name == ServerMetaKey { // the server is a gateway like this one
			f.metaServer = jsonrpc.Span{Start: f.meta.Start + value.Start, End: f.meta.Start + value.End}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("_meta is not a JSON object: %w", err)
	}
	return nil
}

// edit replaces the bytes of at by text.
type edit struct {
	at   jsonrpc.Span
	text string
}

// listed renders the definition as clients see it and returns where the name
// stands in it.
func (f *members) listed(raw []byte, final, server string, tool bool) ([]byte, jsonrpc.Span) {
	quoted := quote(final)
	edits := []edit{{f.name, quoted}, f.metaEdit(server)}
	if tool && !f.described {
		edits = append(edits, edit{jsonrpc.Span{Start: f.end, End: f.end}, `,"description":""`})
	}
	if edits[0].at.Start > edits[1].at.Start {
		edits[0], edits[1] = edits[1], edits[0]
	}
	out := make([]byte, 0, len(raw)+len(final)+len(server)+64)
	var name jsonrpc.Span
	pos := 0
	for _, e := range edits {
		out = append(out, raw[pos:e.at.Start]...)
		if e.at == f.name {
			name = jsonrpc.Span{Start: len(out), End: len(out) + len(quoted)}
		}
		out = append(out, e.text...)
		pos = e.at.End
	}
	return append(out, raw[pos:]...), name
}

// metaEdit puts the server into _meta, making one where there is none.
func (f *members) metaEdit(server string) edit {
	pair := quote(ServerMetaKey) + ":" + quote(server)
	switch {
	case f.metaServer.Present():
		return edit{f.metaServer, quote(server)}
	case !f.meta.Present():
		return edit{jsonrpc.Span{Start: f.end, End: f.end}, `,"_meta":{` + pair + `}`}
	case f.metaEmpty:
		return edit{f.meta, "{" + pair + "}"}
	}
	at := f.meta.Start + 1
	return edit{jsonrpc.Span{Start: at, End: at}, pair + ","}
}

// quote renders s as a JSON string. Names and servers are plain; a URI may hold
// anything, and encoding/json must not escape its & for HTML.
func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil { // invalid UTF-8, which the scan of the definition refused
		return `""`
	}
	return string(b)
}

func descriptionOf(definition []byte) string {
	var d struct {
		Description string `json:"description"`
	}
	// The definition was scanned when it arrived; a description of another type
	// is shown as none.
	_ = json.Unmarshal(definition, &d)
	return d.Description
}
