package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// toolNames lists the tools through the client.
func toolNames(t *testing.T, c *mcptest.Client) []string {
	t.Helper()
	a := c.Call("tools/list", `{}`)
	require.Equal(t, http.StatusOK, a.Status, a.String())
	var l struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	require.NoError(t, json.Unmarshal(a.Result(), &l), a.String())
	names := []string{}
	for _, tool := range l.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// D1, D2, D8, G8, M1: the main job. Several servers behind one endpoint; the
// first call of a session opens the backend session, the next ones go direct.
func TestMainJob(t *testing.T) {
	weather := mcptest.New(t, nil)
	files := mcptest.New(t, func(s *mcptest.Server) { s.SSE = true })
	g := up(t, entry("weather", weather), entry("files", files))
	c := g.client()
	assert.Equal(t, []string{"weather_echo", "weather_add", "files_echo", "files_add"}, toolNames(t, c))

	for _, server := range []struct {
		name string
		fake *mcptest.Server
	}{{"weather", weather}, {"files", files}} {
		for range 3 {
			a := c.CallTool(server.name+"_echo", `{"x":1}`)
			require.Equal(t, http.StatusOK, a.Status, a.String())
			assert.Contains(t, string(a.Result()), `{"x":1}`)
		}
		calls := server.fake.Method("tools/call")
		require.Len(t, calls, 3)
		for _, r := range calls {
			assert.Equal(t, "echo", r.Tool())
		}
	}
	assert.InDelta(t, 2, g.calls("broker"), 0, "the first call to each server")
	assert.InDelta(t, 4, g.calls("direct"), 0, "all others")
}
