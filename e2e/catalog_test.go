package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// status is what the admin API says of a server.
func (g *gateway) status(server string) map[string]any {
	g.t.Helper()
	var s map[string]any
	require.NoError(g.t, json.Unmarshal([]byte(g.adminGet("/api/v1/servers/"+server)), &s))
	return s
}

// K13, D18: after kill -9 of the gateway, a call to a server that is still down is
// 503 and not "Tool not found", in the session that the client had.
func TestServerIsStillDownAfterARestart(t *testing.T) {
	stay, down := mcptest.New(t, nil), mcptest.New(t, nil)
	g := up(t, entry("stay", stay), entry("down", down))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("down_echo", `{}`).Status)
	kept := filepath.Join(g.Dir, "state", "catalogs", "down.json")
	require.Eventually(t, func() bool { _, err := os.Stat(kept); return err == nil }, patience, 10*time.Millisecond)
	g.kill()
	down.Stop()
	g.start()
	assert.Equal(t, []string{"stay_echo", "stay_add"}, toolNames(t, c))
	a := c.CallTool("down_echo", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status, a.String())
	assert.Contains(t, a.ErrorMessage(), "unavailable")
	assert.Equal(t, "Tool not found: down_none", c.CallTool("down_none", `{}`).ErrorMessage())
	down.Restart()
	require.Eventually(t, func() bool { return c.CallTool("down_echo", `{}`).Status == http.StatusOK }, patience, 50*time.Millisecond)

	g.kill()
	require.NoError(t, os.WriteFile(kept, []byte(`{"version":1,"tools":[`), 0o600))
	g.start()
	assert.Contains(t, g.logs.String(), "is damaged")
	assert.Equal(t, http.StatusOK, c.CallTool("down_echo", `{}`).Status, "it is only a cache")
}

// D17, D18, D19: the admin API and the metrics say at once what a call would meet.
func TestAvailabilityInStep(t *testing.T) {
	fake := mcptest.New(t, nil)
	many := mcptest.New(t, func(s *mcptest.Server) {
		page := make([]string, 10_001)
		for i := range page {
			page[i] = fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, i)
		}
		s.Tools = []string{mcptest.Page(page...)}
	})
	g := up(t, entry("s", fake), entry("many", many))
	c := g.client()
	require.Eventually(t, func() bool { return g.status("s")["way"] == "direct" }, patience, 10*time.Millisecond)
	assert.Equal(t, "ready", g.status("s")["state"])
	assert.InDelta(t, 1, g.metric("patchbay_server_up", `server="s"`), 0)
	assert.Equal(t, []any{"unavailable", "LimitExceeded", "none"},
		[]any{g.status("many")["state"], g.status("many")["reason"], g.status("many")["way"]})

	fake.Stop()
	require.Eventually(t, func() bool { return c.CallTool("s_echo", `{}`).Status == http.StatusServiceUnavailable }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return g.status("s")["state"] == "unavailable" }, patience, 10*time.Millisecond)
	assert.Equal(t, "Unreachable", g.status("s")["reason"])
	assert.InDelta(t, 0, g.metric("patchbay_server_up", `server="s"`), 0)
	assert.InDelta(t, 0, g.metric("patchbay_tools"), 0)
	assert.Contains(t, g.adminGet("/api/v1/tools?server=s"), `"available":false,"reason":"Unreachable"`)
	fake.Restart()
	require.Eventually(t, func() bool { return g.status("s")["way"] == "direct" }, patience, 10*time.Millisecond)
	assert.Contains(t, g.adminGet("/api/v1/tools?server=s"), `"available":true`)
	assert.InDelta(t, 1, g.metric("patchbay_server_up", `server="s"`), 0)
}
