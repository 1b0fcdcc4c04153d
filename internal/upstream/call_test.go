package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/registry"
)

func TestPostKeepsBytesAndPrivacy(t *testing.T) { // D9
	const body = `{ "jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":9007199254740993,"\u0061":1} } }`
	s := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus = 0 })
	c, err := NewClient(config.Server{
		Name: "s", URL: s.URL() + "?q=1", Headers: map[string]string{"Authorization": "Bearer ours", "X-Both": "ours"},
	}, Options{Version: "9"})
	require.NoError(t, err)
	defer c.Close()
	resp, err := c.Post(ctxOf(t), Ref{ID: "backend", Revision: "2025-06-18"}, []byte(body), http.Header{
		"Authorization": {"Bearer client"}, "Cookie": {"c=1"}, "mcp-session-id": {"gateway"}, "X-Patchbay-Cluster": {"evil"},
		"Mcp-Protocol-Version": {"1999-01-01"}, "Connection": {"X-Hop, close"}, "X-Hop": {"1"}, "Te": {"trailers"},
		"Accept-Encoding": {"gzip"}, "X-Both": {"client"}, "X-Kept": {"a", "b"}, "Mcp-Name": {"echo"}, "X-Mcp-Virtualserver": {"v"},
	})
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(answer), `{"n":9007199254740993,"\u0061":1}`)

	r := s.Requests()[0]
	assert.Equal(t, body, string(r.Body))
	assert.Equal(t, "q=1", r.RawQuery)
	assert.Equal(t, http.Header{
		"Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer ours"},
		"Content-Length": {fmt.Sprint(len(body))}, "Content-Type": {"application/json"},
		"Mcp-Name": {"echo"}, "Mcp-Protocol-Version": {"2025-06-18"}, "Mcp-Session-Id": {"backend"},
		"User-Agent": {"patchbay/9"}, "X-Both": {"ours"}, "X-Kept": {"a", "b"},
	}, r.Header)
}

func TestRevisionWithoutVersionHeader(t *testing.T) {
	s := mcptest.New(t, func(s *mcptest.Server) { s.ProtocolVersion = "2025-03-26" })
	c := client(t, s.URL(), Options{})
	o, err := c.Open(ctxOf(t), OpenParams{})
	require.NoError(t, err)
	_, err = c.Call(ctxOf(t), o.Ref, mcp.MethodPing, nil)
	require.NoError(t, err)
	for _, r := range s.Requests() {
		assert.Empty(t, r.Header.Get(mcp.HeaderProtocolVersion))
	}
}

func TestOpenSaysWhatItIsTold(t *testing.T) { // K5, K10
	s := mcptest.New(t, func(s *mcptest.Server) { s.SSE, s.Prime = true, true })
	c := client(t, s.URL(), Options{})
	one, err := c.Open(ctxOf(t), OpenParams{
		Revision: "2025-06-18", Capabilities: []byte(`{"elicitation":{},"x":1e400}`), ClientInfo: []byte(`{"name":"<me>"}`),
	})
	require.NoError(t, err)
	assert.Equal(t, `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{},"x":1e400},"clientInfo":{"name":"<me>"}}`,
		string(s.Requests()[0].Params))
	assert.Equal(t, "2025-06-18", one.Revision)
	two, err := c.Open(ctxOf(t), OpenParams{})
	require.NoError(t, err)
	assert.NotEqual(t, one.ID, two.ID)
	require.NoError(t, c.Delete(ctxOf(t), one.Ref))
	require.NoError(t, c.Delete(ctxOf(t), one.Ref), "ended already: no error")
	_, err = c.Call(ctxOf(t), one.Ref, mcp.MethodPing, nil)
	require.ErrorIs(t, err, ErrLost)
	_, err = c.Call(ctxOf(t), two.Ref, mcp.MethodPing, nil)
	require.NoError(t, err)
}

// sseAnswer answers every request with the stream, in which %s is the id.
func sseAnswer(t *testing.T, stream string) (*mcptest.Server, *Client) {
	t.Helper()
	s := mcptest.New(t, func(s *mcptest.Server) { s.Sessions = false })
	s.Handle("x", func(w http.ResponseWriter, r *mcptest.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, strings.ReplaceAll(stream, "%s", string(r.ID)))
	})
	return s, client(t, s.URL(), Options{Limits: Limits{Event: 64 << 10}})
}

func TestCallReadsEventStreams(t *testing.T) {
	const want = `{"v":9007199254740993}`
	answer := `{"jsonrpc":"2.0","id":%s,"result":` + want + `}`
	for name, stream := range map[string]string{
		"plain":          "data: " + answer + "\n\n",
		"CRLF":           "event: message\r\ndata: " + answer + "\r\n\r\n",
		"CR":             "data: " + answer + "\r\r",
		"BOM":            "\xef\xbb\xbfdata: " + answer + "\n\n",
		"comments":       ": hello\n\n:\ndata: " + answer + "\n\n",
		"no space":       "data:" + answer + "\n\n",
		"several lines":  "data: " + strings.Replace(answer, ",", ",\ndata: ", 1) + "\n\n",
		"primed":         "id: 1\nretry: 10\ndata:\n\nid: 2\ndata: " + answer + "\n\n",
		"other messages": `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n\n" + `data: {"jsonrpc":"2.0","id":"other","result":1}` + "\n\ndata: " + answer + "\n\n",
		"long line":      "data: " + strings.Replace(answer, `"v"`, strings.Repeat(" ", 40<<10)+`"v"`, 1) + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, c := sseAnswer(t, stream)
			got, err := c.Call(ctxOf(t), Ref{}, "x", nil)
			require.NoError(t, err)
			assert.JSONEq(t, want, string(got))
			assert.Contains(t, string(got), "9007199254740993")
		})
	}
}

func TestCallRefusesBadEventStreams(t *testing.T) {
	for name, tc := range map[string]struct {
		stream string
		reason registry.Reason
	}{
		"too long a line":  {"data: " + strings.Repeat("x", 70<<10) + "\n\n", registry.ReasonLimitExceeded},
		"too many lines":   {strings.Repeat("data: x\n", 20<<10) + "\n", registry.ReasonLimitExceeded},
		"endless comments": {strings.Repeat(": x\n", 40<<10), registry.ReasonLimitExceeded},
		"not JSON":         {"data: <html>\n\n", registry.ReasonProtocolError},
		"ends early":       {": nothing\n\n", registry.ReasonUnreachable},
		"cut off":          {`data: {"jsonrpc":`, registry.ReasonUnreachable},
		"asks too much":    {strings.Repeat(`data: {"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n\n", maxAsked+1), registry.ReasonLimitExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := sseAnswer(t, tc.stream)
			_, err := c.Call(ctxOf(t), Ref{}, "x", nil)
			e := upstreamError(t, err)
			assert.Equal(t, tc.reason, e.Reason, e)
			assert.True(t, e.Delivered)
		})
	}
}

func TestCallAnswersPingsOnTheWay(t *testing.T) {
	s, c := sseAnswer(t, `data: {"jsonrpc":"2.0","id":0,"method":"ping"}`+"\n\n"+`data: {"jsonrpc":"2.0","id":%s,"result":{}}`+"\n\n")
	_, err := c.Call(ctxOf(t), Ref{}, "x", nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":0,"result":{}}`, string(s.Requests()[1].Body))
}

func TestCallErrors(t *testing.T) { // G11
	s := mcptest.New(t, nil)
	c := client(t, s.URL(), Options{Limits: Limits{Answer: 1000}})
	o, err := c.Open(ctxOf(t), OpenParams{})
	require.NoError(t, err)
	_, err = c.Call(ctxOf(t), o.Ref, "nope", map[string]int{"a": 1})
	var rpc *RPCError
	require.ErrorAs(t, err, &rpc)
	assert.Equal(t, mcp.CodeMethodNotFound, rpc.Code)

	s.Handle("big", func(w http.ResponseWriter, r *mcptest.Request) { s.Reply(w, r, `"`+strings.Repeat("x", 2000)+`"`) })
	_, err = c.Call(ctxOf(t), o.Ref, "big", nil)
	assert.Equal(t, registry.ReasonLimitExceeded, upstreamError(t, err).Reason)

	s.Handle("bad", func(w http.ResponseWriter, r *mcptest.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"m","data":{"n":1e400}}}`, r.ID)
	})
	_, err = c.Call(ctxOf(t), o.Ref, "bad", nil)
	require.ErrorAs(t, err, &rpc)
	assert.Equal(t, `{"n":1e400}`, string(rpc.Data))

	s.Handle("slow", func(_ http.ResponseWriter, r *mcptest.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Call(ctx, o.Ref, "slow", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	e := upstreamError(t, err)
	assert.True(t, e.Delivered)
	assert.Contains(t, e.Message, "in time")
}

func TestLost(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   bool
	}{
		{404, "", true},
		{404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`, true},
		{404, `{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`, false},
		{400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`, true},
		{400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`, true},
		{400, "invalid session\n", true},
		{400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}`, false},
		{400, "", false},
		{200, "session", false},
		{500, "session", false},
	} {
		assert.Equal(t, tc.want, Lost(tc.status, []byte(tc.body)), "%d %s", tc.status, tc.body)
	}
}

func TestProbe(t *testing.T) {
	for _, status := range []int{404, 400, 0} {
		s := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus = status })
		c := client(t, s.URL(), Options{})
		o, err := c.Open(ctxOf(t), OpenParams{})
		require.NoError(t, err)
		got, err := c.Probe(ctxOf(t), o.Ref)
		require.NoError(t, err)
		assert.Equal(t, status, got)
		assert.Equal(t, 1, s.Sessioned(), "harmless")
		ping := s.Method(mcp.MethodPing)[0]
		assert.NotEqual(t, o.ID, ping.Session)
		assert.Len(t, ping.Session, len(o.ID), "it looks like a real one")
	}
}

func TestMadeUpSessionIDs(t *testing.T) {
	for _, id := range []string{"1", "", "0b6e3f1c-8a3e-4a53-9a57-2d4f4c6f0e11", "ABCDEF0123456789", strings.Repeat("~", 50), "zzzzzzzzzzzzzzzz"} {
		got := madeUp(id)
		assert.NotEqual(t, id, got)
		assert.True(t, validSessionID(got))
	}
	uuid := "0b6e3f1c-8a3e-4a53-9a57-2d4f4c6f0e11"
	assert.Regexp(t, `^0b6e3f1c-8a3e-4a53-[0-9a-f]{4}-[0-9a-f]{12}$`, madeUp(uuid))
}

func TestStream(t *testing.T) {
	s := mcptest.New(t, func(s *mcptest.Server) { s.Prime = true })
	c := client(t, s.URL(), Options{})
	o, err := c.Open(ctxOf(t), OpenParams{})
	require.NoError(t, err)
	stop := errors.New("stop")
	go func() {
		if s.AwaitStreams(1, wait) {
			s.Notify(`{"jsonrpc":"2.0","method":"n"}`)
		}
	}()
	var events []Event
	err = c.Stream(ctxOf(t), o.Ref, "last-1", func(ev Event) error {
		if events = append(events, ev); ev.Data != "" {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	assert.Equal(t, []Event{{ID: "prime-1"}, {ID: "prime-1", Data: `{"jsonrpc":"2.0","method":"n"}`}}, events)
	get := s.Await(1, wait, func(r *mcptest.Request) bool { return r.HTTPMethod == http.MethodGet })[0]
	assert.Equal(t, "last-1", get.Header.Get("Last-Event-Id"))

	s.Forget()
	require.ErrorIs(t, c.Stream(ctxOf(t), o.Ref, "", nil), ErrLost)
	none := mcptest.New(t, func(s *mcptest.Server) { s.Stream = false })
	require.ErrorIs(t, client(t, none.URL(), Options{}).Stream(ctxOf(t), Ref{}, "", nil), ErrNoStream)
}

// A large event is read in linear time: 16 MiB in pieces of 4 KiB took the
// parser alone 26 s.
func TestLargeEventInSmallPieces(t *testing.T) {
	body := strings.NewReader("data: " + strings.Repeat("x", 8*mib) + "\n\n")
	c := client(t, "http://127.0.0.1:1", Options{})
	began := time.Now()
	n := 0
	require.NoError(t, c.readEvents(pieces{body}, func(ev Event) error { n += len(ev.Data); return nil }))
	assert.Equal(t, 8*mib, n)
	assert.Less(t, time.Since(began), 3*time.Second)
	t.Log(time.Since(began))
}

type pieces struct{ r io.Reader }

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), 4<<10)]) }

func TestLimitsOfLists(t *testing.T) {
	pages := make([]string, 6)
	for i := range pages {
		pages[i] = mcptest.Page(mcptest.Tool(fmt.Sprint(i)), mcptest.Tool(fmt.Sprint(i, "b")))
	}
	for name, limits := range map[string]Limits{
		"pages": {Pages: 5}, "items": {Items: 11}, "bytes": {Catalog: 500},
	} {
		t.Run(name, func(t *testing.T) {
			s := mcptest.New(t, func(s *mcptest.Server) { s.Tools = pages })
			r := Check(ctxOf(t), config.Server{Name: "s", URL: s.URL()}, Options{Limits: limits})
			assert.Equal(t, registry.ReasonLimitExceeded, r.Reason)
			assert.Contains(t, r.Message, "tools/list")
		})
	}
}
