package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// executed counts how often each argument {"n":N} was really run: a call that a
// server refuses because of its session is recorded by the fake, but not run.
type executed struct {
	mu sync.Mutex
	n  map[string]int
}

func countCalls(s *mcptest.Server) *executed {
	e := &executed{n: map[string]int{}}
	s.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
		e.mu.Lock()
		e.n[string(r.Arguments())]++
		e.mu.Unlock()
		s.Reply(w, r, `{"content":[],"structuredContent":{"length":`+fmt.Sprint(len(r.Arguments()))+`}}`)
	})
	return e
}

func (e *executed) times(args string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n[args]
}

// A backend that forgets its sessions between two calls is not noticed, whether
// it says so with 404 or 400, and the call runs once.
func TestBackendForgetsSessions(t *testing.T) {
	for _, status := range []int{404, 400} {
		for _, sse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d sse=%v", status, sse), func(t *testing.T) {
				fake := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus, s.SSE = status, sse })
				ran := countCalls(fake)
				g := up(t, entry("s", fake))
				c := g.client()
				for n := range 2 {
					require.Equal(t, http.StatusOK, c.CallTool("s_echo", fmt.Sprintf(`{"n":%d}`, n)).Status)
				}
				fake.Forget()
				big := `{"n":"` + strings.Repeat("x", 3<<20) + `"}`
				for _, args := range []string{`{"n":2}`, `{"n":3}`} {
					a := c.CallTool("s_echo", args)
					require.Equal(t, http.StatusOK, a.Status, a.String())
					assert.Equal(t, 1, ran.times(args))
				}
				fake.Forget()
				a := c.CallTool("s_echo", big)
				require.Equal(t, http.StatusOK, a.Status, "a large body: %.200s", a.Body)
				assert.Equal(t, 1, ran.times(big))
				assert.Contains(t, string(a.Body), fmt.Sprintf(`"length":%d`, len(big)))
				assert.InDelta(t, 2, g.calls("recovered"), 0)
				assert.Empty(t, a.Header.Get("Mcp-Session-Id"))
			})
		}
	}
}

// A hundred sessions whose backend session is dead meet it at once.
func TestHundredSessionsRecover(t *testing.T) {
	fake := mcptest.New(t, nil)
	ran := countCalls(fake)
	g := up(t, entry("s", fake))
	clients := make([]*mcptest.Client, 100)
	each := func(f func(i int, c *mcptest.Client)) {
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() { f(i, c) })
		}
		wg.Wait()
	}
	for i := range clients {
		clients[i] = g.client()
	}
	each(func(_ int, c *mcptest.Client) { assert.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status) })
	fake.Forget()
	each(func(i int, c *mcptest.Client) {
		args := fmt.Sprintf(`{"n":%d}`, i)
		a := c.CallTool("s_echo", args)
		assert.Equal(t, http.StatusOK, a.Status, a.String())
		assert.Equal(t, 1, ran.times(args))
	})
	assert.InDelta(t, 100, g.calls("recovered"), 0)
}

// No connection: the call falls to the broker, which tells what is the matter;
// when the server is back, so are the calls.
func TestDeadBackend(t *testing.T) {
	fake := mcptest.New(t, nil)
	alive := mcptest.New(t, nil)
	g := up(t, entry("s", fake), entry("alive", alive))
	c := g.client()
	for range 2 {
		require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	}
	fake.Stop()
	a := c.CallTool("s_echo", `{"n":1}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status, a.String())
	assert.Equal(t, -32003, a.Code())
	assert.Contains(t, a.ErrorMessage(), `"s"`)
	python := c.Post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_echo","arguments":{}}}`, "User-Agent", "python-httpx/0.28.1")
	assert.Equal(t, http.StatusOK, python.Status, "a client that dies of error statuses")
	assert.Equal(t, -32003, python.Code())
	assert.Equal(t, http.StatusOK, c.CallTool("alive_echo", `{}`).Status)
	fake.Restart()
	require.Eventually(t, func() bool { return c.CallTool("s_echo", `{"n":2}`).Status == http.StatusOK }, patience, 50*time.Millisecond)
}

// The bodies of redirects, challenges and cookies stay between the gateway and
// the backend.
func TestNothingOfTheBackendLeaks(t *testing.T) {
	for _, status := range []int{301, 302, 307, 401} {
		fake := mcptest.New(t, nil)
		g := up(t, entry("s", fake))
		c := g.client()
		for range 2 {
			require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
		}
		fake.Handle("tools/call", func(w http.ResponseWriter, _ *mcptest.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.Header().Set("Www-Authenticate", "Bearer")
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(status)
		})
		a := c.CallTool("s_echo", `{}`)
		assert.Equal(t, http.StatusBadGateway, a.Status, a.String())
		assert.NotZero(t, a.Code())
		for _, h := range []string{"Location", "Www-Authenticate", "Set-Cookie", "Mcp-Session-Id"} {
			assert.Empty(t, a.Header.Get(h), h)
		}
	}
}
