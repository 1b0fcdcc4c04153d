package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

const toolsChanged = "notifications/tools/list_changed"

// D11, D12, K8, K9, M12: every connected client hears of a server that comes,
// goes or changes its tools, and then sees the new list.
func TestListChanges(t *testing.T) {
	one, late := mcptest.New(t, nil), mcptest.New(t, nil)
	late.Stop()
	g := up(t, entry("one", one), entry("late", late))
	clients := []*mcptest.Client{g.client(), g.client(), g.client()}
	streams := make([]*mcptest.GetStream, len(clients))
	for i, c := range clients {
		streams[i] = c.Stream("")
		require.Equal(t, http.StatusOK, streams[i].Status)
		assert.Contains(t, streams[i].Header.Get("Content-Type"), "text/event-stream")
	}
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 3 }, patience, 10*time.Millisecond)
	expect := func(what string, names ...string) {
		t.Helper()
		for i, c := range clients {
			streams[i].Await(toolsChanged, patience)
			require.Eventually(t, func() bool {
				return strings.Join(toolNames(t, c), " ") == strings.Join(names, " ")
			}, patience, 20*time.Millisecond, what)
		}
	}
	require.Equal(t, []string{"one_echo", "one_add"}, toolNames(t, clients[0]))

	late.Restart()
	expect("a server comes", "one_echo", "one_add", "late_echo", "late_add")
	require.True(t, one.AwaitStreams(1, patience))
	one.SetTools(mcptest.Page(mcptest.Tool("echo"), mcptest.Tool("fresh")))
	one.Notify(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	expect("a server changes its tools", "one_echo", "one_fresh", "late_echo", "late_add")
	assert.Equal(t, http.StatusOK, clients[0].CallTool("one_fresh", `{}`).Status)
	gone := clients[0].CallTool("one_add", `{}`)
	assert.Equal(t, "Tool not found: one_add", gone.ErrorMessage())
	late.Stop()
	expect("a server goes", "one_echo", "one_fresh")
	a := clients[0].CallTool("late_echo", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status)
	late.Restart()
	expect("and comes back", "one_echo", "one_fresh", "late_echo", "late_add")
	assert.InDelta(t, 2, g.metric("patchbay_servers", `state="ready"`), 0)
	assert.InDelta(t, 4, g.metric("patchbay_tools"), 0)
}

// A server without a GET stream is polled.
func TestPolling(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) { s.Stream = false })
	g := up(t, entry("s", fake, "poll: 1s"))
	c := g.client()
	s := c.Stream("")
	require.Equal(t, []string{"s_echo", "s_add"}, toolNames(t, c))
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 1 }, patience, 10*time.Millisecond)
	fake.SetTools(mcptest.Page(mcptest.Tool("new")))
	s.Await(toolsChanged, patience)
	require.Equal(t, []string{"s_new"}, toolNames(t, c))
}

// D2, D14, D15, D16, K17, M2: what is wrong with one server's tools costs those
// tools only; two servers without a prefix both work.
func TestToolsOfAllKinds(t *testing.T) {
	first := mcptest.New(t, func(s *mcptest.Server) {
		s.Name = "first"
		s.Tools = []string{mcptest.Page(mcptest.Tool("same"), `{"name":"bad","inputSchema":{"type":"strin"}}`, `{"name":"bare","inputSchema":{"type":"object"}}`)}
	})
	second := mcptest.New(t, func(s *mcptest.Server) {
		s.Name = "second"
		s.Tools = []string{mcptest.Page(mcptest.Tool("same")), mcptest.Page(mcptest.Tool("other"))}
	})
	custom := mcptest.New(t, nil)
	g := up(t, entry("first", first, "prefix: ''"), entry("second", second, "prefix: ''"), entry("third", custom, "prefix: 3.x-"))
	c := g.client()
	assert.Equal(t, []string{"same", "bare", "second_same", "other", "3.x-echo", "3.x-add"}, toolNames(t, c))
	list := string(c.Call("tools/list", `{}`).Result())
	assert.Contains(t, list, `{"name":"bare","inputSchema":{"type":"object"},"_meta":{"patchbay.dev/server":"first"},"description":""}`)
	for range 2 {
		assert.Contains(t, string(c.CallTool("same", `{}`).Body), "first ran same")
		assert.Contains(t, string(c.CallTool("second_same", `{}`).Body), "second ran same")
		assert.Contains(t, string(c.CallTool("other", `{}`).Body), "second ran other")
	}
	assert.Equal(t, "Tool not found: bad", c.CallTool("bad", `{}`).ErrorMessage())
	assert.Contains(t, g.logs.String(), "SchemaInvalid")
}
