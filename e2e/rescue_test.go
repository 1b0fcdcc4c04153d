package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// breaking is a server whose tool begins an event stream and does not end it:
// "reset" cuts the connection, "hang" says nothing more.
func breaking(t *testing.T) *mcptest.Server {
	t.Helper()
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Tools = []string{mcptest.Page(mcptest.Tool("ok"), mcptest.Tool("reset"), mcptest.Tool("hang"))}
	})
	s.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
		if r.Tool() == "ok" {
			s.Reply(w, r, `{"content":[]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		mcptest.Event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}`)
		if r.Tool() == "reset" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	})
	return s
}

// M7: a direct event stream that breaks off, by a reset or by the call's time
// limit, gives each official client a JSON-RPC error within 1 s, and the backend
// of the call that timed out a cancellation. See docs/decisions/005.
func TestRescue(t *testing.T) {
	const limit = 1500 * time.Millisecond
	fake := breaking(t)
	g := up(t, entry("s", fake, "timeout: 1500ms"))
	for _, c := range sdkClients {
		t.Run(c.name, func(t *testing.T) {
			before := g.calls("direct")
			for _, tool := range []string{"s_reset", "s_hang"} {
				r := runSteps(t, c.env, c.argv, g.URL(),
					step{"op": "listTools"}, step{"op": "callTool", "name": "s_ok", "args": step{}},
					step{"op": "callTool", "name": tool, "args": step{}, "timeoutMs": 15000})
				require.Nil(t, r[1].Error)
				require.NotNil(t, r[2].Error, "%s: %s", tool, r[2].Result)
				assert.NotContains(t, strings.ToLower(r[2].Error.Message), "timed out", "by the gateway, not the client's own clock")
				assert.Contains(t, r[2].Error.Message, `server "s"`)
				late := time.Duration(r[2].MS) * time.Millisecond
				if tool == "s_hang" {
					late -= limit
				}
				t.Logf("%s told %s after the end", tool, late)
				assert.Less(t, late, time.Second)
			}
			if c.name != "python 1" { // takes the broker's way, which tells in the stream itself
				assert.InDelta(t, before+2, g.calls("direct"), 0)
			}
		})
	}
	assert.Positive(t, g.metric("patchbay_rescues_total", `to="stream"`))
	cancelled := fake.Await(1, patience, mcptest.IsMethod("notifications/cancelled"))
	require.NotEmpty(t, cancelled)
}

// A client without an open stream is told on the next one.
func TestRescueOnTheNextStream(t *testing.T) {
	g := up(t, entry("s", breaking(t)))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_ok", `{}`).Status)
	a := c.Post(`{"jsonrpc":"2.0","id":"the call","method":"tools/call","params":{"name":"s_reset","arguments":{}}}`)
	require.Error(t, a.Err, "the stream breaks off")
	require.Eventually(t, func() bool { return g.metric("patchbay_rescues_total", `to="kept"`) == 1 }, patience, 10*time.Millisecond)
	s := c.Stream("")
	select {
	case ev := <-s.Events:
		var m struct {
			ID    string
			Error struct{ Code int }
		}
		require.NoError(t, json.Unmarshal([]byte(ev.Data), &m))
		assert.Equal(t, "the call", m.ID)
		assert.Equal(t, -32603, m.Error.Code)
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
}

// The Go client sees the end of the body and fails by itself.
func TestRescueGo(t *testing.T) {
	const limit = 1500 * time.Millisecond
	g := up(t, entry("s", breaking(t), "timeout: 1500ms"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: g.URL()}, nil)
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: "s_ok"})
	require.NoError(t, err)
	for tool, ends := range map[string]time.Duration{"s_reset": 0, "s_hang": limit} {
		start := time.Now()
		_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: tool})
		require.Error(t, err)
		late := time.Since(start) - ends
		t.Logf("%s: %v, %s after the end", tool, err, late)
		assert.Less(t, late, time.Second)
	}
}

// G10: the time limit of a call on both ways, and what the backend hears of it.
func TestCallTimeout(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) {
		s.Tools = []string{mcptest.Page(mcptest.Tool("ok"), mcptest.Tool("slow"))}
	})
	fake.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
		if r.Tool() == "slow" {
			<-r.Context().Done()
			return
		}
		fake.Reply(w, r, `{"content":[]}`)
	})
	g := up(t, entry("s", fake, "timeout: 300ms"))
	c := g.client()
	for i, way := range []string{"broker", "direct"} {
		before := g.calls(way)
		a := c.Post(`{"jsonrpc":"2.0","id":"` + way + `","method":"tools/call","params":{"name":"s_slow","arguments":{}}}`)
		assert.Equal(t, http.StatusGatewayTimeout, a.Status, a.String())
		assert.Equal(t, -32004, a.Code())
		assert.Contains(t, a.ErrorMessage(), "Timeout")
		assert.Equal(t, `"`+way+`"`, string(a.ID()))
		assert.InDelta(t, before+1, g.calls(way), 0)
		got := fake.Await(i+1, patience, mcptest.IsMethod("notifications/cancelled"))
		require.Len(t, got, i+1)
		assert.Contains(t, string(got[i].Params), `"requestId":"`+way+`"`)
	}
}

// What came of calls is in the metrics, by server, tool and outcome, on all ways.
func TestCallMetrics(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	for range 5 {
		require.Equal(t, http.StatusOK, c.CallTool("s_add", `{"a":1,"b":2}`).Status)
	}
	fake.Forget()
	require.Equal(t, http.StatusOK, c.CallTool("s_add", `{"a":1,"b":2}`).Status)
	require.Eventually(t, func() bool {
		return g.metric("patchbay_call_seconds_count", `server="s"`, `tool="add"`, `outcome="ok"`) == 6
	}, patience, 20*time.Millisecond)
	assert.Zero(t, g.metric("patchbay_call_seconds_count", `outcome="went_to_recovery"`))
}
