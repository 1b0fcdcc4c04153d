package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// D3: a list comes from memory. It waits for no server, not even for one that
// answers nothing any more, and no other request holds it up.
func TestListWaitsForNobody(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	release := make(chan struct{})
	hang := func(http.ResponseWriter, *mcptest.Request) { <-release }
	fake.Handle("tools/list", hang)
	fake.Handle("tools/call", hang)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.CallTool("s_echo", `{}`)
	}()
	fake.Await(1, patience, mcptest.IsMethod("tools/call"))
	fake.ResetRequests()
	for range 50 {
		assert.Equal(t, []string{"s_echo", "s_add"}, toolNames(t, c))
	}
	assert.Empty(t, fake.Method("tools/list"))
	close(release)
	<-done
}

// G7: a changed description is a change, and is told.
func TestChangedDescription(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) { s.Tools = []string{mcptest.Page(mcptest.Tool("a"))} })
	g := up(t, entry("s", fake))
	c := g.client()
	s := c.Stream("")
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 1 }, patience, 10*time.Millisecond)
	require.True(t, fake.AwaitStreams(1, patience))
	fake.SetTools(mcptest.Page(strings.Replace(mcptest.Tool("a"), "The tool", "Another tool", 1)))
	fake.Notify(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	s.Await(toolsChanged, patience)
	assert.Contains(t, string(c.Call("tools/list", `{}`).Result()), "Another tool")
}

// calls.log gets a line for each call, on all ways; without Envoy's report the
// direct ones are missing.
func TestCallLog(t *testing.T) {
	for direct, want := range map[string]int{"true": 4, "false": 2} {
		fake := mcptest.New(t, nil)
		g := upWith(t, "calls: {direct: "+direct+", log: calls.json}\n", entry("s", fake))
		c := g.client()
		for range 3 { // one by the broker, two direct
			require.Equal(t, http.StatusOK, c.CallTool("s_add", `{"a":1,"b":2}`).Status)
		}
		fake.Forget()
		require.Equal(t, http.StatusOK, c.CallTool("s_add", `{"a":1,"b":2}`).Status)
		lines := func() []string {
			text, err := os.ReadFile(filepath.Join(g.Dir, "calls.json"))
			require.NoError(t, err)
			return strings.Fields(string(text))
		}
		require.Eventually(t, func() bool { return len(lines()) >= want }, patience, 20*time.Millisecond)
		ways := map[string]int{}
		for _, line := range lines() {
			var call struct{ Server, Tool, Way, Outcome string }
			require.NoError(t, json.Unmarshal([]byte(line), &call), line)
			assert.Equal(t, "s add ok", call.Server+" "+call.Tool+" "+call.Outcome)
			ways[call.Way]++
		}
		if direct == "true" {
			assert.Equal(t, map[string]int{"broker": 1, "direct": 2, "recovered": 1}, ways)
		} else {
			assert.Equal(t, map[string]int{"broker": 1, "recovered": 1}, ways)
		}
	}
}
