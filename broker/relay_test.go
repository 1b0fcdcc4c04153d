package broker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
)

// lone is a gateway with one server, whose tools/call is h.
func lone(t *testing.T, h mcptest.Handler, change ...func(*config.Server)) (*gateway, *mcptest.Server) {
	t.Helper()
	s := mcptest.New(t, nil)
	s.Handle(mcp.MethodToolsCall, h)
	cfg := config.Server{Name: "s", URL: s.URL()}
	for _, c := range change {
		c(&cfg)
	}
	return start(t, options{servers: []config.Server{cfg}}), s
}

// sse answers with the raw bytes of an event stream; then breaks the connection
// off, or ends it.
func sse(raw string, cut bool) mcptest.Handler {
	return func(w http.ResponseWriter, _ *mcptest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, raw)
		_ = http.NewResponseController(w).Flush()
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

const call = `{"jsonrpc":"2.0","id":"c\u0031","method":"tools/call","params":{"name":"s_echo"}}`

// ownFields are what the gateway adds to a stream of 2025-11-25: an id for each
// event, and the priming event.
var ownFields = regexp.MustCompile(`^id: pb-call-[0-9a-f]{16}-0-\S*\ndata:\n\n|(?m)^id: pb-call-\S+\n`)

// theirs returns a stream without what the gateway adds.
func theirs(body []byte) string { return ownFields.ReplaceAllString(string(body), "") }

// D9, D10: what a server streams arrives as the same bytes, but for the ids.
func TestEventStreamIsPassedByteForByte(t *testing.T) {
	raw := ": hello\n\nid: 1\nretry: 10\ndata:\n\n" +
		"event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\r\ndata:  \"params\":{\"x\":9007199254740993}}\r\n\r\n" +
		"data: {\"jsonrpc\":\"2.0\",\"id\":\"c1\",\"result\":{\"content\":[],\"_\":1.0,\"z\":\"\\u00e9\"}}\n\n: bye\n\n"
	g, _ := lone(t, sse(raw, false))
	a := g.client().Post(call)
	assert.Equal(t, strings.Replace(raw, "id: 1\n", "", 1), theirs(a.Body))
	assert.Equal(t, "no", a.Header.Get("X-Accel-Buffering"))
	g.counted(mcp.MethodToolsCall, "broker", "ok")
}

// M7: a client hears in the stream that the answer will not come, with its id.
func TestEventStreamThatBreaksOffEndsWithAnError(t *testing.T) {
	note := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"
	wrong := "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n"
	for name, tc := range map[string]struct {
		raw, kept string
		cut       bool
	}{
		"reset":                {note, note, true},
		"in an event":          {note + "data: {\"json", note, true},
		"ended":                {note, note, false},
		"nothing":              {"", "", false},
		"another call's":       {note + wrong, note, true},
		"event over the limit": {note + "data: " + strings.Repeat("x", 16<<20) + "\n\n", note, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := lone(t, sse(tc.raw, tc.cut))
			a := g.client().Post(call)
			assert.Equal(t, http.StatusOK, a.Status)
			require.NoError(t, a.Err, "the stream ends properly")
			assert.True(t, strings.HasPrefix(theirs(a.Body), tc.kept+"event: message\n"), "%.300s", a.Body)
			assert.Equal(t, `"c\u0031"`, string(a.ID()), "the id as the client wrote it")
			assert.Equal(t, mcp.CodeInternal, a.Code())
			assert.Contains(t, a.ErrorMessage(), `server "s" `)
			g.counted(mcp.MethodToolsCall, "broker", "backend_broken")
			assert.Len(t, s.Method(mcp.MethodToolsCall), 1, "no silent repeat")
		})
	}
}

func TestEventStreamThatBreaksOffAfterTheAnswerIsWhole(t *testing.T) {
	raw := "data: {\"jsonrpc\":\"2.0\",\"id\":\"c1\",\"result\":{}}\n\n"
	g, _ := lone(t, sse(raw, true))
	a := g.client().Post(call)
	assert.Equal(t, raw, theirs(a.Body))
	g.counted(mcp.MethodToolsCall, "broker", "ok")
}

// cutJSON declares more than it sends.
func cutJSON(declared, sent int) mcptest.Handler {
	return func(w http.ResponseWriter, _ *mcptest.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(declared))
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"c1","result":"`+strings.Repeat("x", sent))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// M7: half a JSON text never looks like a whole one.
func TestJSONThatBreaksOff(t *testing.T) {
	g, s := lone(t, cutJSON(1000, 500))
	a := g.client().Post(call)
	assert.Equal(t, http.StatusBadGateway, a.Status)
	assert.Equal(t, `server "s" broke off its answer; the call may have run`, a.ErrorMessage())
	assert.Equal(t, `"c\u0031"`, string(a.ID()))
	assert.Len(t, s.Method(mcp.MethodToolsCall), 1, "no silent repeat")

	// Beyond 1 MiB the begin is on its way already: the connection breaks too.
	g, _ = lone(t, cutJSON(8<<20, 3<<20))
	a = g.client().Post(call)
	assert.Equal(t, http.StatusOK, a.Status)
	require.ErrorIs(t, a.Err, io.ErrUnexpectedEOF)
	g.counted(mcp.MethodToolsCall, "broker", "backend_broken")
}

func TestLargeJSONIsWhole(t *testing.T) {
	for _, n := range []int{1<<20 - 40, 1 << 20, 5 << 20} {
		body := `{"jsonrpc":"2.0","id":"c1","result":"` + strings.Repeat("x", n) + `"}`
		g, _ := lone(t, func(w http.ResponseWriter, _ *mcptest.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		a := g.client().Post(call)
		require.NoError(t, a.Err)
		assert.True(t, body == string(a.Body), "%d bytes came of %d", len(a.Body), len(body))
		g.counted(mcp.MethodToolsCall, "broker", "ok")
	}
}

// hang answers begin, if any, and then waits until the test or the gateway is
// done.
func hang(t *testing.T, begin func(http.ResponseWriter)) mcptest.Handler {
	end := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(end) }))
	return func(w http.ResponseWriter, r *mcptest.Request) {
		if begin != nil {
			begin(w)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}
}

// G10: the client is told, and so is the backend.
func TestTimeout(t *testing.T) {
	note := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"
	for name, tc := range map[string]struct {
		begin  func(http.ResponseWriter)
		status int
	}{
		"before the answer": {nil, http.StatusGatewayTimeout},
		"in the JSON": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc"`)
		}, http.StatusGatewayTimeout},
		"in the stream": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, note)
		}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := lone(t, hang(t, tc.begin), func(c *config.Server) { c.Timeout = config.Duration(200 * time.Millisecond) })
			a := g.client().Post(call)
			assert.Equal(t, tc.status, a.Status)
			assert.Equal(t, mcp.CodeTimeout, a.Code(), a)
			assert.Equal(t, `Timeout: server "s" did not answer within 200ms`, a.ErrorMessage())
			assert.Equal(t, `"c\u0031"`, string(a.ID()))
			got := s.Await(1, wait, mcptest.IsMethod(mcp.NotificationCancelled))
			assert.JSONEq(t, `{"requestId":"c1","reason":"timeout"}`, string(got[0].Params))
			assert.Equal(t, s.Method(mcp.MethodToolsCall)[0].Session, got[0].Session)
			g.counted(mcp.MethodToolsCall, "broker", "timeout")
		})
	}
}

// A disconnect is no cancellation (2025-11-25, Transports). But where no stream
// has begun the client has nothing to come back with, and the backend's
// connection goes too, as it would without a gateway between.
func TestClientThatLeaves(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the answer": nil,
		"in the JSON":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"jsonrpc"`) },
	} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			g, s := lone(t, func(w http.ResponseWriter, r *mcptest.Request) {
				if begin != nil {
					begin(w)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
				close(left)
			})
			c := g.client()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); c.PostContext(ctx, call) }()
			s.Await(1, wait, mcptest.IsMethod(mcp.MethodToolsCall))
			cancel()
			<-done
			select {
			case <-left:
			case <-time.After(wait):
				require.FailNow(t, "the backend goes on")
			}
			g.counted(mcp.MethodToolsCall, "broker", "client_gone")
			assert.Empty(t, s.Method(mcp.NotificationCancelled))
			assert.NotContains(t, g.log.String(), "call failed", "that is no fault of the server")
		})
	}
}

// What a client may see of a backend's answer, and a backend of a request.
func TestHeadersThatStayHere(t *testing.T) {
	g, s := lone(t, func(w http.ResponseWriter, r *mcptest.Request) {
		h := w.Header()
		for name, v := range map[string]string{
			"Mcp-Session-Id": "backend", "Set-Cookie": "a=b", "Www-Authenticate": "Basic", "X-Patchbay-Cluster": "x",
			"X-Envoy-Overloaded": "true", "Mcp-Protocol-Version": "x", "X-Other": "kept", "Content-Type": "application/json; charset=utf-8",
		} {
			h.Set(name, v)
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
	}, func(c *config.Server) { c.Headers = map[string]string{"Authorization": "Bearer ours", "X-Key": "k"} })
	c := g.client()
	a := c.Post(call, "Authorization", "Bearer theirs", "Cookie", "c=d", "X-Patchbay-Cluster", "evil", "X-Patchbay-Recover", "forged",
		"X-Envoy-Upstream-Rq-Timeout-Ms", "1", "X-Authorized-Tools", "t", "Mcp-Name", "s_echo", "Last-Event-Id", "5",
		"Connection", "X-Hop", "X-Hop", "h", "X-Kept", "v", "Accept", "text/*, */*;q=0.1", "Traceparent", "00-a-b-01")
	require.Equal(t, http.StatusOK, a.Status, a)
	assert.Equal(t, "kept", a.Header.Get("X-Other"))
	assert.Equal(t, "application/json; charset=utf-8", a.Header.Get("Content-Type"))
	for _, name := range []string{"Mcp-Session-Id", "Set-Cookie", "Www-Authenticate", "X-Patchbay-Cluster", "X-Envoy-Overloaded", "Mcp-Protocol-Version"} {
		assert.Empty(t, a.Header.Get(name), name)
	}
	got := s.Method(mcp.MethodToolsCall)[0].Header
	for name, want := range map[string]string{
		"Authorization": "Bearer ours", "X-Key": "k", "X-Kept": "v", "Traceparent": "00-a-b-01",
		"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Mcp-Protocol-Version": "2025-11-25",
		"Cookie": "", "X-Patchbay-Cluster": "", "X-Patchbay-Recover": "", "X-Envoy-Upstream-Rq-Timeout-Ms": "",
		"X-Authorized-Tools": "", "Mcp-Name": "", "Last-Event-Id": "", "X-Hop": "",
	} {
		assert.Equal(t, want, got.Get(name), name)
	}
	assert.NotContains(t, fmt.Sprint(got), c.Session)
}

// An answer under a status that would mislead a client comes under another.
func TestStatusesThatWouldMislead(t *testing.T) {
	for name, tc := range map[string]struct {
		status, code int
		body         string
		want         int
		message      string
	}{
		"no answer":               {202, mcp.CodeInternal, "", 502, `server "s" accepted the call and did not answer it`},
		"empty":                   {200, mcp.CodeInternal, " \n", 502, `server "s" accepted the call and did not answer it`},
		"404 with an answer":      {404, -32601, `{"jsonrpc":"2.0","id":"c1","error":{"code":-32601,"message":"m"}}`, 200, "m"},
		"404 without":             {404, mcp.CodeInternal, `not found`, 502, `server "s" answered with HTTP 404`},
		"refused credential":      {401, mcp.CodeInternal, `{}`, 502, `server "s" refused the gateway's credential`},
		"redirect":                {302, mcp.CodeInternal, ``, 502, `server "s" answered with a redirect, which is not followed`},
		"400 with an answer, G11": {400, -5, `{"jsonrpc":"2.0","id":"c1","error":{"code":-5,"message":"m"}}`, 400, "m"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mcptest.New(t, func(s *mcptest.Server) { s.Sessions = false })
			s.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, _ *mcptest.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			g := start(t, options{servers: []config.Server{{Name: "s", URL: s.URL()}}})
			a := g.client().Post(call)
			assert.Equal(t, tc.want, a.Status)
			assert.Equal(t, tc.code, a.Code())
			assert.Equal(t, tc.message, a.ErrorMessage())
			assert.Len(t, s.Method(mcp.MethodToolsCall), 1)
		})
	}
}
