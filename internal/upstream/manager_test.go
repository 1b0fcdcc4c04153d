package upstream

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
)

func server(name string, s *mcptest.Server) config.Server {
	return config.Server{Name: name, URL: s.URL(), Poll: config.Duration(time.Hour)}
}

func TestApplyAddsKeepsReplacesRemoves(t *testing.T) { // G1, G2
	one, two := mcptest.New(t, nil), mcptest.New(t, nil)
	l := newLedger(t)
	m := NewManager(l, fast)
	defer m.Close()
	a, b := server("a", one), server("b", two)
	m.Apply([]config.Server{a, b})
	closed(t, m.Tried())
	l.await(0, func(r report) bool { return r.what == "ready" && r.name == "a" })
	l.await(0, func(r report) bool { return r.what == "ready" && r.name == "b" })
	kept, _ := m.Client("a")

	prefix := "x_"
	a.Prefix = &prefix // reached as before
	b.Headers = map[string]string{"X-Key": "k"}
	next := len(l.all())
	m.Apply([]config.Server{b, a})
	l.mu.Lock()
	assert.Equal(t, []string{"b", "a"}, l.order)
	l.mu.Unlock()
	l.await(next, func(r report) bool { return r.what == "add" && r.name == "a" })
	l.await(next, func(r report) bool { return r.what == "ready" && r.name == "b" })
	same, ok := m.Client("a")
	assert.True(t, ok)
	assert.Same(t, kept, same)
	assert.Equal(t, 1, one.Initialized(), "a server that is reached as before keeps its session")
	assert.Equal(t, 2, two.Initialized())
	last := two.Method(mcp.MethodInitialize)[1]
	assert.Equal(t, "k", last.Header.Get("X-Key"))

	next = len(l.all())
	m.Apply([]config.Server{a})
	l.await(next, func(r report) bool { return r.what == "remove" && r.name == "b" })
	_, ok = m.Client("b")
	assert.False(t, ok)
	two.Await(2, wait, func(r *mcptest.Request) bool { return r.HTTPMethod == http.MethodDelete && two.Deleted(r.Session) > 0 })
}

func TestCloseEndsSessions(t *testing.T) {
	s := mcptest.New(t, nil)
	m, l := watch(t, s, fast)
	l.await(0, is("ready"))
	s.AwaitStreams(1, wait)
	m.Close()
	assert.Zero(t, s.Sessioned(), "ended by DELETE before Close returned")
	told := len(l.all())
	m.Apply([]config.Server{server("late", s)})
	assert.Len(t, l.all(), told, "nothing after Close")
}

func TestCloseDoesNotWaitForAHangingServer(t *testing.T) {
	hang := make(chan struct{})
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Intercept = func(_ http.ResponseWriter, r *mcptest.Request) bool {
			if r.HTTPMethod != http.MethodDelete {
				return false
			}
			<-hang
			return true
		}
	})
	defer close(hang)
	m, l := watch(t, s, fast)
	l.await(0, is("ready"))
	began := time.Now()
	m.Close()
	assert.Less(t, time.Since(began), endTimeout+time.Second)
	assert.Equal(t, 1, s.Sessioned(), "it was asked to end the session and did not")
}

func TestTriedWithoutServers(t *testing.T) {
	m := NewManager(newLedger(t), fast)
	defer m.Close()
	m.Apply(nil)
	closed(t, m.Tried())
}

func TestSettingsThatCannotBeUsed(t *testing.T) {
	l := newLedger(t)
	m := NewManager(l, fast)
	defer m.Close()
	m.Apply([]config.Server{{Name: "s", URL: "https://127.0.0.1:1/mcp", TLS: &config.ServerTLS{CAFile: "missing.pem"}}})
	closed(t, m.Tried())
	r, _ := l.await(0, is("unavailable"))
	assert.Contains(t, r.message, "tls.caFile")
	_, ok := m.Client("s")
	assert.False(t, ok)
	m.Suspect("s")
	s := mcptest.New(t, nil)
	m.Apply([]config.Server{server("s", s)})
	l.await(0, is("ready"))
}

func TestCheck(t *testing.T) {
	s := mcptest.New(t, nil)
	got := Check(ctxOf(t), server("s", s), fast)
	assert.Equal(t, Result{Revision: "2025-11-25", Tools: 2}, got)
	assert.Zero(t, s.Sessioned(), "the session was ended")
	s.Stop()
	got = Check(ctxOf(t), server("s", s), fast)
	require.NotEmpty(t, got.Message)
	assert.EqualValues(t, "Unreachable", got.Reason)
}
