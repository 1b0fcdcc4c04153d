package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// A client's forged gateway headers change nothing and reach no backend, its
// credentials and session id stay at the gateway, and the server's own
// credential arrives, on all three ways.
func TestHeaderHygiene(t *testing.T) {
	t.Setenv("E2E_TOKEN", "server-token")
	fake := mcptest.New(t, nil)
	other := mcptest.New(t, nil)
	g := up(t, entry("s", fake, `headers: {Authorization: "Bearer ${E2E_TOKEN}", X-Own: own}`), entry("other", other))
	c := g.client()
	forged := []string{
		"X-Patchbay-Cluster", "mcp_other_00000000", "X-Patchbay-Recover", "forged", "x-patchbay-lost", "0",
		"X-Patchbay-Anything", "forged", "X-Envoy-Upstream-Rq-Timeout-Ms", "1", "X-Envoy-Retry-On", "5xx",
		"X-Envoy-Original-Path", "/x", "Authorization", "Bearer of-the-client", "Cookie", "of-the-client=cookie",
		"Proxy-Authorization", "Basic of-the-client", "X-Authorized-Tools", "of-the-client", "X-Mcp-Prefer", "a=b",
		"X-Forwarded-For", "203.0.113.7", "Last-Event-Id", "of-the-client", "X-Harmless", "stays",
		"Mcp-Name", "s_echo", "Mcp-Method", "tools/call",
	}
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s_echo","arguments":{}}}`
	for _, way := range []string{"broker", "direct", "recovered"} {
		if way == "recovered" {
			fake.Forget()
		}
		fake.ResetRequests()
		before := g.calls(way)
		a := c.Post(body, forged...)
		require.Equal(t, http.StatusOK, a.Status, a.String())
		require.InDelta(t, before+1, g.calls(way), 0, way)
		calls := fake.Method("tools/call")
		require.NotEmpty(t, calls)
		for _, r := range calls {
			assert.Equal(t, "Bearer server-token", r.Header.Get("Authorization"), way)
			assert.Equal(t, "own", r.Header.Get("X-Own"), way)
			assert.Equal(t, "stays", r.Header.Get("X-Harmless"), way)
			assert.NotEqual(t, c.Session, r.Session, way)
			if v := r.Header.Get("Mcp-Name"); v != "" {
				assert.Equal(t, "echo", v, way)
			}
			for name, values := range r.Header {
				lower, all := strings.ToLower(name), strings.Join(values, ",")
				assert.False(t, strings.HasPrefix(lower, "x-patchbay-"), "%s: %s", way, name)
				assert.False(t, strings.HasPrefix(lower, "x-envoy-"), "%s: %s", way, name)
				assert.False(t, strings.HasPrefix(lower, "x-forwarded-"), "%s: %s", way, name)
				assert.NotContains(t, all, "of-the-client", "%s: %s", way, name)
				assert.NotContains(t, all, c.Session, "%s: %s", way, name)
			}
		}
		assert.Empty(t, other.Method("tools/call"), way)
		for _, h := range []string{"Mcp-Session-Id", "Set-Cookie", "Www-Authenticate", "X-Patchbay-Recover"} {
			assert.Empty(t, a.Header.Get(h), way)
		}
	}
}
