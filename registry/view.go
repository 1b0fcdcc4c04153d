package registry

import (
	"sync"

	"patchbay.dev/internal/mcp"
)

// View is what one caller may see of a Snapshot: the lists and the calls of a
// request ask the same View. It is immutable and may be kept.
type View struct {
	snap  *Snapshot
	lists [4]func() []byte // by Kind
	pages [4]func() *pages // by Kind
}

func newView(s *Snapshot) *View {
	v := &View{snap: s}
	for kind, l := range map[Kind]*list{
		Tools: &s.tools, Prompts: &s.prompts, Resources: &s.resources, Templates: &s.templates,
	} {
		v.lists[kind] = sync.OnceValue(func() []byte { return renderList(kind.member(), l) })
		v.pages[kind] = sync.OnceValue(func() *pages { return newPages(l) })
	}
	return v
}

// member is the member of the list method's result that holds the items
// (2025-11-25, schema.ts, ListToolsResult and its like).
func (k Kind) member() string {
	return [...]string{Tools: "tools", Prompts: "prompts", Resources: "resources", Templates: "resourceTemplates"}[k]
}

// List returns the result object of the list method of that kind, rendered once.
// The caller must not change it.
func (v *View) List(k Kind) []byte { return v.lists[k]() }

// Tool returns the tool that clients call name.
func (v *View) Tool(name string) (*Entry, bool) {
	e, ok := v.snap.tools.byName[name]
	return e, ok
}

// Prompt returns the prompt that clients call name.
func (v *View) Prompt(name string) (*Entry, bool) {
	e, ok := v.snap.prompts.byName[name]
	return e, ok
}

// Template returns the resource template that clients know as uriTemplate.
func (v *View) Template(uriTemplate string) (*Entry, bool) {
	e, ok := v.snap.templates.byName[uriTemplate]
	return e, ok
}

// Resource finds the server that a read of uri goes to, and the URI to ask it
// for. Exact names of the catalog come first, then a server in front of the
// URI, then a bare URI as it stands in some backend's result, then templates.
// Several owners of a bare URI are all returned, for the error message.
func (v *View) Resource(uri string) (bare string, owners []*Server) {
	if e, ok := v.snap.resources.byName[uri]; ok {
		return e.Original, []*Server{e.Server}
	}
	if name, rest, ok := mcp.SplitURI(uri); ok {
		if srv, ok := v.snap.byName[name]; ok && srv.Config.ToolPrefix() != "" {
			return rest, []*Server{srv}
		}
	}
	for _, e := range v.snap.resources.all {
		if e.Original == uri {
			owners = appendOnce(owners, e.Server)
		}
	}
	if len(owners) == 0 {
		tried := 0
		for _, e := range v.snap.templates.all {
			if !e.template.mayMatch(uri) {
				continue
			}
			if tried++; tried > maxTemplatesTried {
				break
			}
			if e.template.matches(uri) {
				owners = appendOnce(owners, e.Server)
			}
		}
	}
	return uri, owners
}

// maxTemplatesTried bounds the work for one bare URI that no list names.
const maxTemplatesTried = 200

func appendOnce(s []*Server, srv *Server) []*Server {
	for _, have := range s {
		if have == srv {
			return s
		}
	}
	return append(s, srv)
}

func renderList(key string, l *list) []byte {
	size := len(key) + 8
	for _, e := range l.all {
		size += len(e.Listed) + 1
	}
	b := make([]byte, 0, size)
	b = append(b, `{"`...)
	b = append(b, key...)
	b = append(b, `":[`...)
	first := true
	for _, e := range l.all {
		if !e.listed() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, e.Listed...)
	}
	return append(b, `]}`...)
}
