package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bodyLimit = 64 << 10

// fixture is a router over a real registry and session table.
type fixture struct {
	*router.Router
	t        testing.TB
	registry *registry.Registry
	table    *session.Table
	routable bool
}

func newFixture(tb testing.TB) *fixture {
	f := &fixture{t: tb, registry: registry.New(slog.New(slog.DiscardHandler)), routable: true}
	f.table = session.NewTable(session.Options{})
	tb.Cleanup(f.table.Close)
	f.Router = &router.Router{Sessions: f.table, Catalog: f.registry, BodyLimit: bodyLimit}
	f.registry.SetRoutable(func(string) bool { return f.routable })
	return f
}

// ready adds a server with two tools, a prompt and a resource.
func (f *fixture) ready(name string, change ...func(*config.Server)) {
	s := config.Server{Name: name, URL: "http://127.0.0.1:1/" + name}
	for _, c := range change {
		c(&s)
	}
	f.registry.Add(s)
	f.registry.SetReady(name, &registry.Catalog{
		Tools:     []registry.Item{tool("echo"), tool("add")},
		Prompts:   []registry.Item{{Name: "ask", Raw: []byte(`{"name":"ask"}`)}},
		Resources: []registry.Item{{Name: "file:///a", Raw: []byte(`{"uri":"file:///a","name":"a"}`)}},
		Templates: []registry.Item{{Name: "note://{id}", Raw: []byte(`{"uriTemplate":"note://{id}","name":"n"}`)}},
	}, registry.Facts{Revision: "2025-11-25", Sessions: true, LostStatus: 404})
}

func tool(name string) registry.Item {
	return registry.Item{Name: name, Raw: fmt.Appendf(nil,
		`{"name":%q,"description":"The tool %s does what its name says, and this text is as long as such texts are.",`+
			`"inputSchema":{"type":"object","properties":{"a":{"type":"integer","description":"The first."},"b":{"type":"string"}}}}`, name, name)}
}

func bare(s *config.Server) {
	none := ""
	s.Prefix = &none
}

// session returns the token of a new session that has backend sessions with the
// servers, and the session.
func (f *fixture) session(servers ...string) (*session.Session, string) {
	s, token := f.table.New(session.Claims{Revision: 3})
	for _, name := range servers {
		srv, ok := f.registry.Snapshot().Server(name)
		require.True(f.t, ok)
		open(f.t, s, srv)
	}
	return s, token
}

// open opens the session's backend session with the server.
func open(tb testing.TB, s *session.Session, srv *registry.Server) {
	tb.Helper()
	_, err := s.OpenBackend(context.Background(), srv.Config.Name, srv.Cluster, nil, func(context.Context) (*session.Backend, error) {
		return &session.Backend{ID: "at-" + srv.Config.Name, Epoch: srv.Cluster, Revision: "2025-11-25"}, nil
	})
	require.NoError(tb, err)
}

// decide decides on a body of a client with the session.
func (f *fixture) decide(token, body string, change ...func(*router.Request)) (router.Decision, *router.Request) {
	r := &router.Request{Body: []byte(body), SessionID: token, Version: "2025-11-25", UserAgent: "node", Accept: "application/json, text/event-stream", ContentType: "application/json"}
	for _, c := range change {
		c(r)
	}
	return f.Decide(r), r
}

// call is a tools/call with id 7.
func call(name string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + name + `","arguments":{"a":1}}}`
}

func request(method, params string) string {
	if params != "" {
		params = `,"params":` + params
	}
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `"` + params + `}`
}

func long(n int) string { return strings.Repeat("x", n) }
