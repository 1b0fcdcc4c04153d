package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// backendSessions returns the session ids of all tools/call, in order.
func backendSessions(s *mcptest.Server) []string {
	var ids []string
	for _, r := range s.Method("tools/call") {
		ids = append(ids, r.Session)
	}
	return ids
}

// K5: one backend session for one client's calls, another one for the next
// client's; none is opened before the first call, and it ends with the client's.
func TestBackendSessionReuse(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	before := fake.Initialized()
	one, two := g.client(), g.client()
	assert.Equal(t, before, fake.Initialized(), "opening a session costs the backends nothing")
	for range 3 {
		require.Equal(t, http.StatusOK, one.CallTool("s_echo", `{}`).Status)
		require.Equal(t, http.StatusOK, two.CallTool("s_echo", `{}`).Status)
	}
	ids := backendSessions(fake)
	require.Len(t, ids, 6)
	assert.NotEmpty(t, ids[0])
	assert.NotEqual(t, ids[0], ids[1])
	for i, id := range ids {
		assert.Equal(t, ids[i%2], id)
		assert.NotContains(t, []string{one.Session, two.Session}, id)
	}

	require.Equal(t, http.StatusNoContent, one.Delete().Status)
	fake.Await(1, patience, func(r *mcptest.Request) bool { return r.HTTPMethod == http.MethodDelete && r.Session == ids[0] })
	gone := one.CallTool("s_echo", `{}`)
	assert.Equal(t, http.StatusNotFound, gone.Status, gone.String())
	assert.Equal(t, -32001, gone.Code())
	assert.Equal(t, http.StatusNotFound, one.Delete().Status, "again")
	assert.Equal(t, http.StatusNotFound, one.Stream("").Status)
	assert.Equal(t, http.StatusOK, two.CallTool("s_echo", `{}`).Status, "the other session lives")
}

// The first calls of a session that arrive together open one backend session.
func TestConcurrentFirstCalls(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	before := fake.Initialized()
	c := g.client()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { assert.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status) })
	}
	wg.Wait()
	assert.Equal(t, before+1, fake.Initialized())
	ids := backendSessions(fake)
	require.Len(t, ids, 20)
	for _, id := range ids {
		assert.Equal(t, ids[0], id)
	}
}

// K10, K11: session ids are unique, also of one client that comes back.
func TestSessionIDsAreUnique(t *testing.T) {
	g := up(t, entry("s", mcptest.New(t, nil)))
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				c := g.client()
				mu.Lock()
				assert.False(t, seen[c.Session])
				seen[c.Session] = true
				mu.Unlock()
				assert.Equal(t, http.StatusNoContent, c.Delete().Status)
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen, 80)
}

// A client does not notice that the gateway was killed and started again; an
// ended session stays ended.
func TestKilledAndStartedAgain(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c, ended := g.client(), g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{"n":1}`).Status)
	require.Equal(t, http.StatusNoContent, ended.Delete().Status)
	g.kill()
	g.start()
	fake.ResetRequests()
	a := c.CallTool("s_echo", `{"n":2}`)
	require.Equal(t, http.StatusOK, a.Status, a.String())
	assert.Contains(t, string(a.Body), `{"n":2}`)
	assert.Len(t, fake.Method("tools/call"), 1)
	assert.Equal(t, http.StatusOK, c.Stream("").Status)
	assert.Equal(t, http.StatusNotFound, ended.CallTool("s_echo", `{}`).Status)
	assert.Equal(t, http.StatusNotFound, ended.Delete().Status)
}

// A forged, altered or foreign session id is 404 and reaches nothing.
func TestForgedSessions(t *testing.T) {
	fake := mcptest.New(t, nil)
	g, other := up(t, entry("s", fake)), up(t, entry("s", mcptest.New(t, nil)))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	flip := func(i int) string {
		b := []byte(c.Session)
		if b[i] == 'A' {
			b[i] = 'B'
		} else {
			b[i] = 'A'
		}
		return string(b)
	}
	backend := fake.Method("tools/call")[0].Session
	forged := map[string]string{
		"foreign": other.client().Session, "made up": "4f7a2c1e-0000-4000-8000-000000000000", "short": c.Session[:10],
		"longer": c.Session + "A", "cut": c.Session[:len(c.Session)-1], "first": flip(0), "middle": flip(len(c.Session) / 2),
		"last": flip(len(c.Session) - 1), "padded": c.Session + "=", "a backend's": backend, "huge": strings.Repeat("A", 8000),
	}
	fake.ResetRequests()
	for name, id := range forged {
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_echo","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		} {
			a := c.Post(body, "Mcp-Session-Id", id)
			assert.Equal(t, http.StatusNotFound, a.Status, "%s: %s", name, a)
			assert.Equal(t, -32001, a.Code(), name)
		}
		assert.Equal(t, http.StatusNotFound, c.Delete("Mcp-Session-Id", id).Status, name)
		assert.Equal(t, http.StatusNotFound, c.Stream("", "Mcp-Session-Id", id).Status, name)
	}
	assert.Empty(t, fake.Method("tools/call"))
	assert.Empty(t, fake.Method("notifications/cancelled"))
	assert.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status, "the true one still works")
}

// Version negotiation of the session era.
func TestVersionNegotiation(t *testing.T) {
	g := up(t, entry("s", mcptest.New(t, nil)))
	for asked, want := range map[string]string{
		"2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2024-11-05": "2025-11-25", "2026-07-28": "2025-11-25", "x": "2025-11-25",
	} {
		c := mcptest.NewClient(t, g.URL())
		c.Revision = asked
		c.Initialize()
		assert.Equal(t, want, c.Revision, asked)
		a := c.CallTool("s_echo", `{}`)
		assert.Equal(t, http.StatusOK, a.Status, fmt.Sprint(asked, a))
	}
}
