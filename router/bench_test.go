package router_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// BenchmarkDecide is the whole of a decision: scan, session, catalog, way, with
// a real table and registry.
func BenchmarkDecide(b *testing.B) {
	f := newFixture(b)
	f.ready("clock")
	f.registry.Add(config.Server{Name: "many", URL: "http://127.0.0.1:1/mcp"})
	c := &registry.Catalog{}
	for i := range 38 {
		c.Tools = append(c.Tools, tool(fmt.Sprintf("tool_%d", i)))
	}
	f.registry.SetReady("many", c, registry.Facts{})
	_, token := f.session("clock")
	for _, bc := range []struct {
		name, body string
		want       router.Way
	}{
		{"call", `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"clock_echo","arguments":{"text":"` + long(64) + `"},"_meta":{"progressToken":1}}}`, router.Direct},
		{"call64KiB", `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"clock_echo","arguments":{"text":"` + long(60<<10) + `"}}}`, router.Direct},
		{"list40", `{"jsonrpc":"2.0","id":17,"method":"tools/list"}`, router.Reply},
		{"ping", `{"jsonrpc":"2.0","id":17,"method":"ping"}`, router.Reply},
		{"unknown", `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"none"}}`, router.Reply},
	} {
		b.Run(bc.name, func(b *testing.B) {
			r := &router.Request{Body: []byte(bc.body), SessionID: token, Version: "2025-11-25", UserAgent: "node", Accept: "application/json, text/event-stream", ContentType: "application/json"}
			b.ReportAllocs()
			var d router.Decision
			for b.Loop() {
				d = f.Decide(r)
			}
			require.Equal(b, bc.want, d.Way)
		})
	}
}
