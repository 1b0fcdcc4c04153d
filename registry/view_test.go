package registry_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

func template(uri string) registry.Item {
	return registry.Item{Name: uri, Raw: fmt.Appendf(nil, `{"uriTemplate":%q,"name":"n"}`, uri)}
}

func resource(uri string) registry.Item {
	return registry.Item{Name: uri, Raw: fmt.Appendf(nil, `{"uri":%q,"name":"n"}`, uri)}
}

func names(owners []*registry.Server) []string {
	out := []string{}
	for _, o := range owners {
		out = append(out, o.Config.Name)
	}
	return out
}

// M10, M11: who a URI belongs to.
func TestResourceResolution(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("one"))
	r.Add(server("two"))
	r.Add(server("plain", ""))
	r.Add(server("git"))
	r.SetReady("one", &registry.Catalog{
		Resources: []registry.Item{resource("file:///a"), resource("file:///both"), resource("ui://w/x")},
		Templates: []registry.Item{template("note://{id}"), template("log://{+path}/x"), template("{+all}:any")},
	}, registry.Facts{})
	r.SetReady("two", &registry.Catalog{
		Resources: []registry.Item{resource("file:///both")},
		Templates: []registry.Item{template("note://{id}"), template("bad://{")},
	}, registry.Facts{})
	r.SetReady("plain", &registry.Catalog{Resources: []registry.Item{resource("git+ssh://p"), resource("file:///p")}}, registry.Facts{})
	r.SetReady("git", &registry.Catalog{}, registry.Facts{})
	for _, tc := range []struct {
		uri, bare string
		owners    []string
	}{
		{"one+file:///a", "file:///a", []string{"one"}},
		{"ui://one.w/x", "ui://w/x", []string{"one"}},
		{"file:///a", "file:///a", []string{"one"}},
		{"ui://w/x", "ui://w/x", []string{"one"}},
		{"file:///both", "file:///both", []string{"one", "two"}},
		{"file:///p", "file:///p", []string{"plain"}},
		{"plain+file:///p", "plain+file:///p", []string{}}, // a server without a prefix has none
		{"git+ssh://p", "git+ssh://p", []string{"plain"}},  // the exact catalog goes first
		{"git+ssh://q", "ssh://q", []string{"git"}},
		{"one+not:listed", "not:listed", []string{"one"}},
		{"none+file:///a", "none+file:///a", []string{}},
		{"note://7", "note://7", []string{"one", "two"}},
		{"note://7/8", "note://7/8", []string{}},
		{"log://a/b/x", "log://a/b/x", []string{"one"}},
		{"what:ever:any", "what:ever:any", []string{"one"}},
		{"bad://{", "bad://{", []string{}},
		{"", "", []string{}},
	} {
		bare, owners := r.Snapshot().Full().Resource(tc.uri)
		assert.Equal(t, tc.bare, bare, tc.uri)
		assert.Equal(t, tc.owners, names(owners), tc.uri)
	}
}

// What a backend lists and what a client asks for cost little, and break nothing.
func TestHostileTemplatesAndURIs(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	many := "x://{a" + strings.Repeat(",a", 1500) + "}"
	r.SetReady("s", &registry.Catalog{Templates: []registry.Item{
		template(many), template("y://{+path}"),
	}}, registry.Facts{})
	view := r.Snapshot().Full()
	require.NotPanics(t, func() {
		_, owners := view.Resource("x://1")
		assert.Empty(t, owners, "package regexp cannot compile it")
	})
	_, owners := view.Resource("y://1")
	assert.Equal(t, []string{"s"}, names(owners))
	_, owners = view.Resource("y://" + strings.Repeat("a", 8<<10))
	assert.Empty(t, owners, "longer than any URI of a catalog")
}

// A definition without the member that names it is dropped, as one with a bad
// schema is.
func TestDefinitionWithoutItsNameIsDropped(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", &registry.Catalog{
		Tools:     []registry.Item{{Name: "a", Raw: []byte(`{"inputSchema":{"type":"object"}}`)}},
		Resources: []registry.Item{{Name: "a:b", Raw: []byte(`{"name":"n"}`)}},
	}, registry.Facts{})
	assert.Empty(t, listed(t, r, registry.Tools))
	assert.Empty(t, listed(t, r, registry.Resources))
	srv, _ := r.Snapshot().Server("s")
	require.Len(t, srv.Problems, 2)
	assert.Equal(t, registry.ReasonSchemaInvalid, srv.Problems[0].Reason)
	assert.Equal(t, `"name" is missing`, srv.Problems[0].Message)
}

// BenchmarkUnknownResource is what a client can make a decision cost with a URI
// that nobody has.
func BenchmarkUnknownResource(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		r := registry.New(slog.New(slog.DiscardHandler))
		r.Add(config.Server{Name: "s", URL: "http://127.0.0.1:1/"})
		c := &registry.Catalog{}
		for i := range n {
			c.Templates = append(c.Templates, template(fmt.Sprintf("note%d://{id}/x/{+rest}", i)))
		}
		r.SetReady("s", c, registry.Facts{})
		v := r.Snapshot().Full()
		for _, uri := range []string{"other://" + strings.Repeat("a", 50), "note5://" + strings.Repeat("a", 8<<10-8)} {
			b.Run(fmt.Sprintf("templates=%d/uri=%d", n, len(uri)), func(b *testing.B) {
				for b.Loop() {
					v.Resource(uri)
				}
			})
		}
	}
}
