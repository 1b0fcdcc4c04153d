package mcptest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/internal/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const wait = 5 * time.Second

func TestDefaultsInJSONAndSSE(t *testing.T) {
	for name, configure := range map[string]func(*Server){
		"json":       nil,
		"sse":        func(s *Server) { s.SSE = true },
		"sse primed": func(s *Server) { s.SSE, s.Prime = true, true },
		"tls h1":     func(s *Server) { s.TLS = true },
		"tls h2":     func(s *Server) { s.TLS, s.H2 = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(t, configure)
			c := NewClient(t, s.URL())
			if s.TLS {
				trust(t, c, s)
			}
			a := c.Initialize()
			require.Equal(t, http.StatusOK, a.Status, a)
			require.NotEmpty(t, c.Session)
			assert.JSONEq(t, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1.0.0"}}`, string(a.Result()))

			const args = `{ "big":9007199254740993,"s":"\u00e9","z":1,"a":2 }`
			a = c.CallTool("echo", args)
			assert.Contains(t, string(a.Body), args, "the same bytes come back")
			assert.Equal(t, "2", string(a.ID()))
			last := s.Requests()[len(s.Requests())-1]
			assert.Equal(t, args, string(last.Arguments()))
			assert.Equal(t, s.H2, last.Proto == "HTTP/2.0")

			a = c.CallTool("add", `{"a":9007199254740993,"b":1}`)
			assert.Contains(t, string(a.Result()), `"sum":9007199254740994`)
			assert.Equal(t, mcp.CodeInvalidParams, c.CallTool("nope", `{}`).Code())
			assert.Equal(t, mcp.CodeMethodNotFound, c.Call("nope", "").Code())

			require.Equal(t, http.StatusOK, c.Delete().Status)
			assert.Equal(t, 1, s.Deleted(c.Session))
			assert.Equal(t, http.StatusNotFound, c.Call(mcp.MethodPing, "").Status)
		})
	}
}

func TestPages(t *testing.T) {
	s := New(t, func(s *Server) { s.Tools = []string{Page(Tool("a")), Page(Tool("b"), Tool("c")), `[]`} })
	c := NewClient(t, s.URL())
	c.Initialize()
	assert.Contains(t, string(c.Call(mcp.MethodToolsList, "").Body), `"nextCursor":"1"`)
	a := c.Call(mcp.MethodToolsList, `{"cursor":"1"}`)
	assert.JSONEq(t, `{"tools":[`+Tool("b")+`,`+Tool("c")+`],"nextCursor":"2"}`, string(a.Result()))
	assert.JSONEq(t, `{"tools":[]}`, string(c.Call(mcp.MethodToolsList, `{"cursor":"2"}`).Result()))
	assert.Equal(t, mcp.CodeInvalidParams, c.Call(mcp.MethodToolsList, `{"cursor":"9"}`).Code())
}

func TestSessionsLost(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest, 0} {
		s := New(t, func(s *Server) { s.LostStatus = status })
		c := NewClient(t, s.URL())
		c.Initialize()
		s.Forget()
		want := status
		if want == 0 {
			want = http.StatusOK
		}
		assert.Equal(t, want, c.Call(mcp.MethodPing, "").Status)
	}
}

func TestGetStream(t *testing.T) {
	s := New(t, nil)
	c := NewClient(t, s.URL())
	c.Initialize()
	st := c.Stream("")
	require.NotNil(t, st)
	require.Equal(t, http.StatusOK, st.Status)
	s.AwaitStreams(1, wait)
	assert.Equal(t, 1, s.Notify(`{"jsonrpc":"2.0","method":"notifications/x"}`))
	assert.Equal(t, 1, s.NotifySession(c.Session, `{"jsonrpc":"2.0","method":"notifications/y"}`))
	assert.Equal(t, 0, s.NotifySession("other", `{}`))
	assert.JSONEq(t, `{"jsonrpc":"2.0","method":"notifications/y"}`, string(st.Await("notifications/y", wait)))
	s.CloseStreams()
	_, open := <-st.Events
	assert.False(t, open, "the stream has ended")
	s.AwaitStreams(0, wait)
}

func TestStopAndRestart(t *testing.T) {
	s := New(t, nil)
	c := NewClient(t, s.URL())
	c.Initialize()
	st := c.Stream("")
	s.AwaitStreams(1, wait)
	s.Stop()
	_, open := <-st.Events
	assert.False(t, open, "a dead server's streams are cut")
	require.Error(t, c.Call(mcp.MethodPing, "").Err)
	s.Restart()
	assert.Equal(t, http.StatusOK, c.Call(mcp.MethodPing, "").Status, "sessions are known still")
}

func TestHandleAndAwait(t *testing.T) {
	s := New(t, nil)
	release := make(chan struct{})
	s.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, r *Request) {
		<-release
		s.Reply(w, r, `{"content":[]}`)
	})
	c := NewClient(t, s.URL())
	c.Initialize()
	done := make(chan *Answer)
	go func() { done <- c.CallTool("echo", `{}`) }()
	require.Len(t, s.Await(1, wait, IsMethod(mcp.MethodToolsCall)), 1)
	close(release)
	assert.JSONEq(t, `{"content":[]}`, string((<-done).Result()))
	s.Handle(mcp.MethodToolsCall, nil)
	assert.Contains(t, string(c.CallTool("echo", `{}`).Body), "structuredContent")
}

func trust(t *testing.T, c *Client, s *Server) {
	t.Helper()
	require.NoError(t, c.Trust(s.CAPEM()))
}
