package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
	"patchbay.dev/internal/sse"
)

// asking is a server whose tool asks its client by method and params given as
// arguments, and answers with what it got.
func asking(t *testing.T) *mcptest.Server {
	t.Helper()
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Tools = []string{mcptest.Page(mcptest.Tool("ask"), mcptest.Tool("ok"))}
	})
	s.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
		if r.Tool() == "ok" {
			s.Reply(w, r, `{"content":[]}`)
			return
		}
		var q struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		_ = json.Unmarshal(r.Arguments(), &q)
		w.Header().Set("Content-Type", "text/event-stream")
		mcptest.Event(w, `{"jsonrpc":"2.0","id":0,"method":"`+q.Method+`","params":`+string(q.Params)+`}`)
		isAnswer := func(a *mcptest.Request) bool {
			return a.Session == r.Session && a.Method == "" && string(a.ID) == "0"
		}
		got := s.Await(1, patience, isAnswer)
		if len(got) == 0 {
			return
		}
		mcptest.Event(w, `{"jsonrpc":"2.0","id":`+string(r.ID)+`,"result":{"content":[],"structuredContent":`+string(got[len(got)-1].Body)+`}}`)
	})
	return s
}

// openedCall is a call whose answer is read event by event.
type openedCall struct {
	body   io.ReadCloser
	events *sse.Reader
}

// message is one JSON-RPC message of the answer.
type message struct {
	ID             json.RawMessage
	Method         string
	Params, Result json.RawMessage
}

func openCall(t *testing.T, c *mcptest.Client, tool, arguments string) *openedCall {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Session-Id": c.Session, "Mcp-Protocol-Version": c.Revision,
	} {
		req.Header.Set(name, value)
	}
	resp, err := c.HTTP.Do(req) //nolint:bodyclose // openedCall.close does
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	o := &openedCall{body: resp.Body, events: sse.NewReader(resp.Body, 1<<20)}
	t.Cleanup(o.close)
	return o
}

func (o *openedCall) close() { _ = o.body.Close() }

// next returns the next message.
func (o *openedCall) next(t *testing.T) message {
	t.Helper()
	for {
		e, err := o.events.Next()
		require.NoError(t, err)
		if len(e.Data) > 0 {
			var m message
			require.NoError(t, json.Unmarshal(e.Data, &m))
			return m
		}
	}
}

// A server's request reaches the client whose call it is, with an id of the
// gateway's; only that client's answer reaches the server, with the server's id.
func TestServerAsksClient(t *testing.T) {
	fake := asking(t)
	g := up(t, entry("s", fake))
	c := mcptest.NewClient(t, g.URL())
	c.Capabilities = `{"elicitation":{},"sampling":{},"roots":{}}`
	c.Initialize()
	other := mcptest.NewClient(t, g.URL())
	other.Capabilities = c.Capabilities
	other.Initialize()

	for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list"} {
		fake.ResetRequests()
		call := openCall(t, c, "s_ask", `{"method":"`+method+`","params":{"message":"\u00e9","big":9007199254740993}}`)
		ask := call.next(t)
		assert.Equal(t, method, ask.Method)
		assert.Equal(t, `{"message":"\u00e9","big":9007199254740993}`, string(ask.Params))
		id := string(ask.ID)
		require.True(t, strings.HasPrefix(id, `"pb-`), id)

		answer := `{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"n":9007199254740993}}}`
		assert.Equal(t, http.StatusBadRequest, other.Post(answer).Status, "another session's answer")
		forged := strings.Replace(answer, id, id[:len(id)-3]+`AA"`, 1)
		assert.Equal(t, http.StatusBadRequest, c.Post(forged).Status, "an altered id")
		assert.Equal(t, http.StatusBadRequest, c.Post(strings.Replace(answer, id, `0`, 1)).Status, "the server's id")
		assert.Empty(t, answers(fake))
		assert.Equal(t, http.StatusAccepted, c.Post(answer).Status)
		assert.Equal(t, http.StatusBadRequest, c.Post(answer).Status, "twice")

		result := call.next(t)
		assert.Contains(t, string(result.Result), strings.Replace(answer, id, "0", 1), "the same bytes, with the server's id")
		assert.Len(t, answers(fake), 1)
	}
	direct := g.client()
	for range 2 {
		require.Equal(t, http.StatusOK, direct.CallTool("s_ok", `{}`).Status)
	}
	assert.Positive(t, g.calls("direct"), "a client that cannot be asked goes direct")
}

func answers(s *mcptest.Server) []*mcptest.Request {
	var out []*mcptest.Request
	for _, r := range s.Requests() {
		if r.HTTPMethod == http.MethodPost && r.Method == "" {
			out = append(out, r)
		}
	}
	return out
}

// A client that did not declare a capability is never asked; the server hears so.
func TestServerAsksWhatWasNotDeclared(t *testing.T) {
	fake := asking(t)
	g := up(t, entry("s", fake))
	for caps, method := range map[string]string{
		`{"roots":{}}`:             "elicitation/create",
		`{"elicitation":{}}`:       "sampling/createMessage",
		`{"sampling":{}}`:          "roots/list",
		`{"elicitation":{"x":{}}}`: "x/unknown",
	} {
		c := mcptest.NewClient(t, g.URL())
		c.Capabilities = caps
		c.Initialize()
		a := c.CallTool("s_ask", `{"method":"`+method+`","params":{}}`)
		require.Equal(t, http.StatusOK, a.Status, a.String())
		assert.Len(t, a.Events, 1, "only the answer")
		assert.Contains(t, string(a.Result()), `"code":-32601`)
	}
}

// The client is gone and does not come back: the server gets an error when the
// call is over.
func TestServerAsksAClientThatLeaves(t *testing.T) {
	fake := asking(t)
	g := up(t, entry("s", fake, "timeout: 1s"))
	c := mcptest.NewClient(t, g.URL())
	c.Capabilities = `{"roots":{}}`
	c.Initialize()
	call := openCall(t, c, "s_ask", `{"method":"roots/list","params":{}}`)
	call.next(t)
	call.close()
	require.Eventually(t, func() bool { return len(answers(fake)) == 1 }, patience, 20*time.Millisecond)
	assert.Contains(t, string(answers(fake)[0].Body), `"error"`)
}

// M13: one subscription at the server for all clients; an update reaches the
// subscribers by the URI that they know; the last one out ends it.
func TestSubscriptions(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) {
		s.Resources = []string{`[{"uri":"file:///a","name":"a"}]`}
		s.Capabilities = `{"resources":{"subscribe":true,"listChanged":true},"tools":{}}`
	})
	g := up(t, entry("s", fake))
	one, two, three := g.client(), g.client(), g.client()
	streams := map[*mcptest.Client]*mcptest.GetStream{}
	for _, c := range []*mcptest.Client{one, two, three} {
		streams[c] = c.Stream("")
	}
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 3 }, patience, 10*time.Millisecond)
	for _, c := range []*mcptest.Client{one, two} {
		a := c.Call("resources/subscribe", `{"uri":"s+file:///a"}`)
		require.JSONEq(t, `{}`, string(a.Result()), a.String())
	}
	assert.Len(t, fake.Method("resources/subscribe"), 1)
	assert.JSONEq(t, `{"uri":"file:///a"}`, string(fake.Method("resources/subscribe")[0].Params))
	require.True(t, fake.AwaitStreams(1, patience))
	fake.Notify(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a","x":9007199254740993}}`)
	for _, c := range []*mcptest.Client{one, two} {
		msg := streams[c].Await("notifications/resources/updated", patience)
		assert.Contains(t, string(msg), `{"uri":"s+file:///a","x":9007199254740993}`)
	}
	require.JSONEq(t, `{}`, string(one.Call("resources/unsubscribe", `{"uri":"s+file:///a"}`).Result()))
	assert.Empty(t, fake.Method("resources/unsubscribe"))
	require.Equal(t, http.StatusNoContent, two.Delete().Status)
	fake.Await(1, patience, mcptest.IsMethod("resources/unsubscribe"))
	assert.Equal(t, -32002, one.Call("resources/subscribe", `{"uri":"s2+file:///none"}`).Code())
	select {
	case ev := <-streams[three].Events:
		t.Errorf("a client that did not subscribe got %s", ev.Data)
	default:
	}
}

// logging/setLevel is each client's own, also for backend sessions that are
// opened later; what a server says on its GET stream reaches that client.
func TestLogging(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) { s.Capabilities = `{"logging":{},"tools":{}}` })
	g := up(t, entry("s", fake))
	c, other := g.client(), g.client()
	require.JSONEq(t, `{}`, string(c.Call("logging/setLevel", `{"level":"warning"}`).Result()))
	assert.Equal(t, -32602, c.Call("logging/setLevel", `{"level":"loud"}`).Code())
	s := c.Stream("")
	require.Equal(t, http.StatusOK, other.CallTool("s_echo", `{}`).Status)
	assert.Empty(t, fake.Method("logging/setLevel"))
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	set := fake.Method("logging/setLevel")
	require.Len(t, set, 1)
	assert.JSONEq(t, `{"level":"warning"}`, string(set[0].Params))
	require.JSONEq(t, `{}`, string(c.Call("logging/setLevel", `{"level":"debug"}`).Result()))
	require.Len(t, fake.Method("logging/setLevel"), 2)

	msg := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":9007199254740993}}`
	require.Eventually(t, func() bool { return fake.NotifySession(set[0].Session, msg) == 1 }, patience, 20*time.Millisecond,
		"the backend session's stream is open while its client's is")
	assert.Equal(t, msg, string(s.Await("notifications/message", patience)))
}
