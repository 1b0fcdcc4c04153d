package broker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/broker"
	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// two are two servers, as real as servers get, and their configuration.
func two(t *testing.T) (one, other *mcptest.Server, cfg []config.Server) {
	t.Helper()
	one = mcptest.New(t, func(s *mcptest.Server) {
		s.Name = "one"
		s.Prompts = []string{`[{"name":"ask"}]`}
		s.Resources = []string{`[{"uri":"file:///a","name":"a"}]`}
	})
	other = mcptest.New(t, func(s *mcptest.Server) { s.Name, s.SSE = "other", true })
	return one, other, []config.Server{{Name: "one", URL: one.URL()}, {Name: "other", URL: other.URL()}}
}

// The broker alone, without Envoy, is a correct gateway. D1, D2, D8-D10, G8, G9,
// K5, K10, K11, M1, M10: a small transcript.
func TestTranscript(t *testing.T) {
	one, other, cfg := two(t)
	g := start(t, options{servers: cfg})
	c := g.stranger()
	a := c.Initialize()
	assert.Equal(t, http.StatusOK, a.Status)
	assert.Equal(t, "2025-11-25", c.Revision)
	assert.Contains(t, string(a.Result()), `"serverInfo":{"name":"patchbay","title":"Patchbay","version":"1.2.3"}`)
	inits := one.Initialized()

	var list struct {
		Tools []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal(c.Call("tools/list", "").Result(), &list))
	assert.Equal(t, []struct{ Name string }{{"one_echo"}, {"one_add"}, {"other_echo"}, {"other_add"}}, list.Tools)
	assert.JSONEq(t, `{}`, string(c.Call("ping", "").Result()))
	assert.Equal(t, inits, one.Initialized(), "what is answered from memory costs the servers nothing")

	const args = `{"big":9007199254740993,"z":1,"a":"\u00e9\/","f":1.0}`
	a = c.Post(`{"id":"x\u0041","jsonrpc":"2.0","method":"tools/call","params":{"x":[ 1 ],"arguments":` + args + `,"na\u006de":"one_echo"}}`)
	require.Equal(t, http.StatusOK, a.Status, a)
	assert.Contains(t, string(a.Body), `"structuredContent":`+args, "the bytes of arguments and results are kept")
	calls := one.Method(mcp.MethodToolsCall)
	require.Len(t, calls, 1)
	assert.Equal(t, `{"id":"x\u0041","jsonrpc":"2.0","method":"tools/call","params":{"x":[ 1 ],"arguments":`+args+`,"na\u006de":"echo"}}`,
		string(calls[0].Body))
	assert.NotEqual(t, c.Session, calls[0].Session, "a backend has its own session")

	a = c.CallTool("other_add", `{"a":2,"b":3}`)
	assert.Contains(t, string(a.Result()), `{"sum":5}`)
	assert.Contains(t, a.Header.Get("Content-Type"), "text/event-stream")
	c.CallTool("other_add", `{"a":2,"b":4}`)
	seen := other.Method(mcp.MethodToolsCall)
	assert.Equal(t, seen[0].Session, seen[1].Session, "the session is reused")

	a = c.CallTool("one_add", `{"a":"no"}`)
	assert.Contains(t, string(a.Result()), `"isError":true`)
	assert.Contains(t, string(c.Call("prompts/get", `{"name":"one_ask"}`).Result()), `\"ask\"`)
	assert.Contains(t, string(c.Call("resources/read", `{"uri":"one+file:///a"}`).Result()), "one has file:///a")
	assert.Contains(t, string(c.Call("resources/read", `{"uri":"file:///a"}`).Result()), "one has file:///a")
	a = c.CallTool("one_no", `{}`)
	assert.Equal(t, mcp.CodeInvalidParams, a.Code())
	assert.Equal(t, "Tool not found: one_no", a.ErrorMessage())
	assert.Equal(t, http.StatusOK, a.Status)

	next := g.client()
	assert.NotEqual(t, c.Session, next.Session)
	next.CallTool("one_echo", `{}`)
	all := one.Method(mcp.MethodToolsCall)
	assert.NotEqual(t, calls[0].Session, all[len(all)-1].Session, "another client has another backend session")

	require.Equal(t, http.StatusNoContent, c.Delete().Status)
	require.Eventually(t, func() bool { return one.Deleted(calls[0].Session) == 1 && other.Deleted(seen[0].Session) == 1 },
		wait, time.Millisecond, "the backend sessions end with the client's")
	a = c.CallTool("one_echo", `{}`)
	assert.Equal(t, http.StatusNotFound, a.Status)
	assert.Equal(t, mcp.CodeSessionNotFound, a.Code())
}

// Negotiation: 2025-11-25, Lifecycle, "Version Negotiation".
func TestInitialize(t *testing.T) {
	g := start(t, options{})
	for asked, want := range map[string]string{
		"2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2024-11-05": "2025-11-25", "2026-07-28": "2025-11-25", "x": "2025-11-25",
	} {
		c := g.stranger()
		c.Revision = asked
		c.Initialize()
		assert.Equal(t, want, c.Revision)
		s, err := g.table.Find(c.Session, "")
		require.NoError(t, err)
		rev, ok := mcp.RevisionByOrdinal(s.Claims().Revision)
		require.True(t, ok)
		assert.Equal(t, want, rev.String(), "the session remembers")
	}
	for params, message := range map[string]string{
		``:                              "initialize: params.protocolVersion is missing",
		`{}`:                            "initialize: params.protocolVersion is missing",
		`{"protocolVersion":""}`:        "initialize: params.protocolVersion is missing",
		`{"protocolVersion":{"a":[1]}}`: "initialize: protocolVersion is not a string",
	} {
		a := g.stranger().Call("initialize", params)
		assert.Equal(t, http.StatusOK, a.Status)
		assert.Equal(t, mcp.CodeInvalidParams, a.Code(), params)
		assert.Equal(t, message, a.ErrorMessage())
		assert.Equal(t, "1", string(a.ID()))
		assert.Empty(t, a.Header.Get(mcp.HeaderSessionID))
	}
	// A client that has lost its session tries anew with the old id.
	a := g.stranger().Post(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
		mcp.HeaderSessionID, "old", mcp.HeaderProtocolVersion, "2026-07-28")
	assert.Equal(t, http.StatusOK, a.Status)
	assert.NotEmpty(t, a.Header.Get(mcp.HeaderSessionID))
	assert.Equal(t, `"i"`, string(a.ID()))
}

func TestInstructionsOfAllServersAreJoined(t *testing.T) {
	big := strings.Repeat("x", 16<<10)
	var cfg []config.Server
	bare := ""
	for _, s := range []struct {
		name, text string
		prefix     *string
	}{{"a", "Use a.", nil}, {"none", "", nil}, {"big", big, nil}, {"bare", `Use <b> & "c".`, &bare}} {
		srv := mcptest.New(t, func(m *mcptest.Server) { m.Instructions = s.text })
		cfg = append(cfg, config.Server{Name: s.name, URL: srv.URL(), Prefix: s.prefix})
	}
	dead := mcptest.New(t, func(m *mcptest.Server) { m.Instructions = "Never." })
	dead.Stop()
	g := start(t, options{servers: append(cfg, config.Server{Name: "dead", URL: dead.URL()})})
	var got struct{ Instructions string }
	require.NoError(t, json.Unmarshal(g.stranger().Initialize().Result(), &got))
	assert.Equal(t, "About the tools whose names start with \"a_\":\nUse a.\n\nUse <b> & \"c\".", got.Instructions)
	g.registry.SetUnavailable("a", registry.ReasonUnreachable, "gone")
	require.NoError(t, json.Unmarshal(g.stranger().Initialize().Result(), &got))
	assert.Equal(t, "Use <b> & \"c\".", got.Instructions)
}

func TestBadRequests(t *testing.T) {
	one, _, cfg := two(t)
	g := start(t, options{servers: cfg})
	c := g.client()
	before := len(one.Method(mcp.MethodToolsCall))
	call := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"one_echo"}}`
	for _, tc := range []struct {
		body         string
		header       []string
		status, code int
		id           string
	}{
		{``, nil, 400, mcp.CodeParseError, ""},
		{call + "x", nil, 400, mcp.CodeParseError, "5"},
		{`{"jsonrpc":"1.0","id":5,"method":"ping"}`, nil, 400, mcp.CodeInvalidRequest, "5"},
		{`[` + call + `]`, nil, 400, mcp.CodeInvalidRequest, ""},
		{strings.Repeat("[", 70) + strings.Repeat("]", 70), nil, 400, mcp.CodeParseError, ""},
		{call, []string{mcp.HeaderSessionID, ""}, 400, mcp.CodeInvalidRequest, "5"},
		{call, []string{mcp.HeaderSessionID, "forged"}, 404, mcp.CodeSessionNotFound, "5"},
		{call, []string{mcp.HeaderProtocolVersion, "2026-07-28"}, 400, mcp.CodeServer, "5"},
		{call, []string{mcp.HeaderVirtualServer, "ns/x"}, 404, mcp.CodeInvalidParams, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":"no/such"}`, nil, 200, mcp.CodeMethodNotFound, "5"},
		{strings.Replace(call, "one_echo", strings.Repeat("n", bodyLimit), 1), nil, 413, mcp.CodeInvalidRequest, ""},
	} {
		a := c.Post(tc.body, tc.header...)
		name := tc.body[:min(len(tc.body), 60)]
		assert.Equal(t, tc.status, a.Status, name)
		assert.Equal(t, tc.code, a.Code(), name)
		assert.Equal(t, tc.id, string(a.ID()), name)
		assert.NotContains(t, string(a.Body), "null", "MCP has no null id")
		assert.Equal(t, "application/json", a.Header.Get("Content-Type"))
	}
	assert.Len(t, one.Method(mcp.MethodToolsCall), before, "none of it reached a backend")
	for _, method := range []string{http.MethodPut, http.MethodOptions, http.MethodPatch} {
		req, err := http.NewRequestWithContext(t.Context(), method, g.url, http.NoBody)
		require.NoError(t, err)
		resp, err := c.HTTP.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
		assert.Equal(t, "POST, GET, DELETE", resp.Header.Get("Allow"))
	}
	assert.Equal(t, 404, c.Delete(mcp.HeaderSessionID, "forged").Status)
	assert.Equal(t, 400, c.Delete(mcp.HeaderSessionID, "").Status)
}

// Python SDK 1.x ends a whole session at a status >= 400 but 404.
func TestFragileClientGetsErrorsWithStatus200(t *testing.T) {
	one, _, cfg := two(t)
	g := start(t, options{servers: cfg})
	c := g.client()
	c.Header.Set("User-Agent", "python-httpx/0.28.1")
	answer := func(status int, typ, body string) {
		one.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, r *mcptest.Request) {
			w.Header().Set("Content-Type", typ)
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, strings.ReplaceAll(body, "ID", string(r.ID)))
		})
	}
	a := c.Post(`{}`)
	assert.Equal(t, 200, a.Status)
	assert.Equal(t, mcp.CodeInvalidRequest, a.Code())
	assert.Equal(t, 404, c.Post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, mcp.HeaderSessionID, "x").Status)

	own := `{"jsonrpc":"2.0","id":ID,"error":{"code":-5,"message":"m","data":[1.0]}}`
	answer(500, "application/json", own)
	a = c.CallTool("one_echo", `{}`)
	assert.Equal(t, 200, a.Status)
	assert.Equal(t, strings.ReplaceAll(own, "ID", string(a.ID())), string(a.Body), "G11: its own error, unchanged")
	for _, body := range []string{`<html>`, `{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"m"}}`} {
		answer(500, "text/html", body)
		a = c.CallTool("one_echo", `{}`)
		assert.Equal(t, 200, a.Status)
		assert.Equal(t, `server "one" answered with HTTP 500`, a.ErrorMessage())
		assert.NotEmpty(t, a.ID())
		b := g.client().CallTool("one_echo", `{}`)
		assert.Equal(t, 500, b.Status, "other clients get it as it is")
		assert.Equal(t, body, string(b.Body))
	}
	one.Stop()
	a = c.CallTool("one_echo", `{}`)
	assert.Equal(t, 200, a.Status)
	assert.Contains(t, []int{mcp.CodeUnavailable, mcp.CodeInternal}, a.Code())
}

func TestBodyThatBreaksOffIs400(t *testing.T) {
	g := start(t, options{})
	u, err := url.Parse(g.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso\r\nno chunk\r\n", u.Path)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(wait)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	g.counted(mcp.MethodOther, "reply", "invalid_request")
}

// In HTTP/2, "Connection: close" would end the connection that all of Envoy's
// streams share.
func TestTooLargeBodyLeavesTheConnectionOfOthersAlone(t *testing.T) {
	var connections atomic.Int64
	g := start(t, options{h2c: true, conn: func(*net.TCPConn) { connections.Add(1) }})
	g.byHand()
	c := g.stranger()
	h2c(t, c, 0)
	c.Initialize()
	s := c.Stream("")
	a := c.Post(strings.Repeat("x", bodyLimit+1))
	assert.Equal(t, http.StatusRequestEntityTooLarge, a.Status)
	assert.Equal(t, http.StatusOK, c.Call("ping", "").Status)
	g.change(0)
	assert.JSONEq(t, toolsChanged, next(t, s))
	assert.EqualValues(t, 1, connections.Load())
}

// panicking is a router that panics for one method.
type panicking struct{ *router.Router }

func (p panicking) Decide(r *router.Request) router.Decision {
	if strings.Contains(string(r.Body), "explode") {
		panic("as told")
	}
	return p.Router.Decide(r)
}

func TestPanicEndsItsRequestAlone(t *testing.T) {
	g := start(t, options{broker: func(o *broker.Options) { o.Router = panicking{o.Router.(*router.Router)} }})
	c := g.client()
	s := c.Stream("")
	a := c.Call("explode", "")
	assert.Equal(t, http.StatusInternalServerError, a.Status)
	assert.Equal(t, mcp.CodeInternal, a.Code())
	assert.NotContains(t, string(a.Body), "as told", "what happened is for the log")
	assert.Contains(t, g.log.String(), "as told")
	assert.Contains(t, g.log.String(), "post_test.go", "with the place")
	assert.EqualValues(t, 1, g.metric("patchbay_panics_total"))
	assert.Equal(t, http.StatusOK, c.Call("ping", "").Status)
	assert.Empty(t, s.Events)
	assert.Equal(t, 1, g.broker.Streams())
}

// exploding panics when a call has been answered.
type exploding struct{}

func (exploding) Record(*calls.Ended) { panic("as told") }

// What follows half an answer would be taken for the rest of it.
func TestPanicAfterTheAnswerHasBegunCutsItOff(t *testing.T) {
	_, _, cfg := two(t)
	g := start(t, options{servers: cfg, broker: func(o *broker.Options) { o.Calls = exploding{} }})
	a := g.client().CallTool("one_echo", `{}`)
	require.Error(t, a.Err)
	assert.NotContains(t, string(a.Body), "internal error")
	assert.EqualValues(t, 1, g.metric("patchbay_panics_total"))
}

// A cancellation goes to the client's sessions, and to no address that one was
// not opened at. Others of a client's notifications end here.
func TestCancellationReachesTheBackendSessions(t *testing.T) {
	one, other, cfg := two(t)
	g := start(t, options{servers: cfg})
	c, stranger := g.client(), g.client()
	stranger.CallTool("other_echo", `{}`)
	c.CallTool("one_echo", `{}`)
	c.CallTool("other_echo", `{}`)
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a\u0062","reason":"r","x":1.0}}`
	a := c.Post(cancel)
	assert.Equal(t, http.StatusAccepted, a.Status)
	assert.Empty(t, a.Body)
	for _, s := range []*mcptest.Server{one, other} {
		got := s.Await(1, wait, mcptest.IsMethod(mcp.NotificationCancelled))
		require.Len(t, got, 1)
		assert.Equal(t, cancel, string(got[0].Body))
		calls := s.Method(mcp.MethodToolsCall)
		assert.Equal(t, calls[len(calls)-1].Session, got[0].Session)
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"one_echo"}}`,
	} {
		assert.Equal(t, http.StatusAccepted, c.Post(body).Status)
	}
	moved := mcptest.New(t, nil)
	g.manager.Apply([]config.Server{{Name: "one", URL: moved.URL()}, cfg[1]})
	c.Post(cancel)
	other.Await(2, wait, mcptest.IsMethod(mcp.NotificationCancelled))
	assert.Empty(t, moved.Method(mcp.NotificationCancelled), "the session was another address's")
	assert.Len(t, one.Method(mcp.MethodToolsCall), 1)
}

func TestSessionsOfAnotherProcessWithTheSameKeysAreAdopted(t *testing.T) {
	g := start(t, options{})
	c := g.client()
	after := start(t, options{})
	c.URL = after.url
	assert.Equal(t, http.StatusOK, c.Call("ping", "").Status)
	require.Equal(t, http.StatusNoContent, c.Delete().Status)
	assert.Equal(t, "the session has ended: send initialize again", c.Call("ping", "").ErrorMessage())

	late := start(t, options{now: func() time.Time { return time.Now().Add(2 * session.DefaultLifetime) }})
	c = g.client()
	c.URL = late.url
	a := c.Call("ping", "")
	assert.Equal(t, http.StatusNotFound, a.Status)
	assert.Equal(t, "the session has expired: send initialize again", a.ErrorMessage())
}
