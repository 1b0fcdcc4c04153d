package broker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	gosse "github.com/tmaxmax/go-sse"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/broker"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
)

// steered is a gateway before one backend whose event streams the test writes.
type steered struct {
	*gateway
	backend *mcptest.Server
	events  chan string   // what the running call sends next; "" ends its stream
	left    chan struct{} // gets one for each call that the gateway gave up
}

func steer(t *testing.T, o options, change ...func(*config.Server)) *steered {
	t.Helper()
	s := &steered{backend: mcptest.New(t, nil), events: make(chan string), left: make(chan struct{}, 64)}
	s.backend.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, r *mcptest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-s.events:
				if e == "" {
					return
				}
				_, _ = io.WriteString(w, e)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				s.left <- struct{}{}
				return
			}
		}
	})
	cfg := config.Server{Name: "s", URL: s.backend.URL()}
	for _, c := range change {
		c(&cfg)
	}
	o.servers = []config.Server{cfg}
	s.gateway = start(t, o)
	return s
}

// gaveUp waits until the gateway has given a call up.
func (s *steered) gaveUp() {
	s.t.Helper()
	select {
	case <-s.left:
	case <-time.After(wait):
		require.FailNow(s.t, "the backend goes on")
	}
}

func note(n int) string {
	return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":%d}}\n\n", n)
}

const (
	answer     = `{"jsonrpc":"2.0","id":"c1","result":{}}`
	lostAnswer = "the answer to this call is not kept any more; the call may have run"
)

// opened is the event stream of a POST that the test can cut.
type opened struct {
	t      *testing.T
	events chan gosse.Event
	cut    context.CancelFunc
	last   string // the last event id
}

// openCall posts call and returns when its stream has begun.
func openCall(t *testing.T, c *mcptest.Client) *opened {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(call))
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(mcp.HeaderSessionID, c.Session)
	req.Header.Set(mcp.HeaderProtocolVersion, c.Revision)
	resp, err := c.HTTP.Do(req) //nolint:bodyclose // below, by who reads it
	require.NoError(t, err)
	o := &opened{t: t, events: make(chan gosse.Event, 1024), cut: cancel}
	t.Cleanup(cancel)
	go func() {
		defer close(o.events)
		defer func() { _ = resp.Body.Close() }()
		for ev, err := range gosse.Read(resp.Body, nil) {
			if err != nil {
				return
			}
			o.events <- ev
		}
	}()
	return o
}

// next returns the data of the next event.
func (o *opened) next() string {
	o.t.Helper()
	select {
	case ev, ok := <-o.events:
		require.True(o.t, ok, "the stream has ended")
		o.last = ev.LastEventID
		return ev.Data
	case <-time.After(wait):
		require.FailNow(o.t, "nothing came")
		return ""
	}
}

// rest returns the data of all events of a stream that is to end by itself.
func rest(t *testing.T, s *mcptest.GetStream) []string {
	t.Helper()
	var out []string
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return out
			}
			out = append(out, ev.Data)
		case <-time.After(wait):
			require.FailNow(t, "the stream does not end", out)
		}
	}
}

// errorOf returns the error message in an answer with the id of call.
func errorOf(t *testing.T, events []string) string {
	t.Helper()
	require.Len(t, events, 1)
	a := mcptest.Answer{Message: []byte(events[0])}
	assert.Equal(t, `"c\u0031"`, string(a.ID()), "the id as the client wrote it")
	return a.ErrorMessage()
}

// A call goes on when its client is cut off; the client gets what it missed on
// that stream and no other, then the rest, until the answer.
func TestCallStreamIsTakenUp(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("h2c ", http2), func(t *testing.T) {
			g := steer(t, options{h2c: http2})
			c, other := g.stranger(), g.stranger()
			if http2 {
				h2c(t, c, 1<<20)
				h2c(t, other, 1<<20)
			}
			c.Initialize()
			other.Initialize()
			o := openCall(t, c)
			assert.Empty(t, o.next(), "a priming event, before the backend has sent anything")
			primed := o.last
			g.events <- note(1)
			assert.Contains(t, o.next(), `"progress":1`)
			o.cut()
			g.events <- note(2)
			again := c.Stream(o.last)
			require.Equal(t, http.StatusOK, again.Status)
			ev := <-again.Events
			assert.Contains(t, ev.Data, `"progress":2`, "what was missed")
			g.events <- note(3)
			assert.Contains(t, (<-again.Events).Data, `"progress":3`, "and what comes now")
			again.Close()
			g.events <- "data: " + answer + "\n\n"
			assert.Equal(t, lostAnswer, errorOf(t, rest(t, other.Stream(o.last))), "it is nobody else's")
			got := rest(t, c.Stream(ev.LastEventID))
			require.Len(t, got, 2)
			assert.Contains(t, got[0], `"progress":3`)
			assert.Equal(t, answer, got[1])
			assert.Len(t, rest(t, c.Stream(primed)), 4, "the whole stream, from its priming event")
			assert.Len(t, g.backend.Method(mcp.MethodToolsCall), 1)
			assert.Empty(t, g.backend.Method(mcp.NotificationCancelled))
			g.counted(mcp.MethodToolsCall, "broker", "ok")
		})
	}
}

// Where events had to be dropped the answer still comes, and only that many are
// missing; where it is the answer, or all of the stream, the call has a clear end.
func TestCallStreamThatIsTooLong(t *testing.T) {
	g := steer(t, options{})
	c := g.client()
	o := openCall(t, c)
	o.next()
	o.cut()
	const sent = 300
	for i := range sent {
		g.events <- note(i)
	}
	g.events <- "data: " + answer + "\n\n"
	g.counted(mcp.MethodToolsCall, "broker", "ok")
	got := rest(t, c.Stream(o.last))
	require.Len(t, got, 256, "the newest ones are kept")
	assert.Contains(t, got[0], fmt.Sprintf(`"progress":%d}`, sent-255))
	assert.Equal(t, answer, got[255])

	first := o.last
	for range 4 { // more ended streams than are kept
		o = openCall(t, c)
		o.next()
		g.events <- "data: " + answer + "\n\n"
		assert.Equal(t, answer, o.next())
		g.events <- ""
		_, more := <-o.events
		require.False(t, more)
	}
	assert.Equal(t, lostAnswer, errorOf(t, rest(t, c.Stream(first))))
	assert.Empty(t, rest(t, c.Stream(o.last)), "nothing was missed")
	for _, id := range []string{"pb-call-0-0-", "pb-call-0-0-e30", "pb-call-0-0-ImMx_"} { // no id, {} and no base64
		assert.Equal(t, http.StatusBadRequest, c.Stream(id).Status, id)
	}
}

// What bounds a call whose client does not come back.
func TestDetachedCallEnds(t *testing.T) {
	short := func(o *broker.Options) { o.DetachTime = 50 * time.Millisecond }
	for name, tc := range map[string]struct {
		options options
		end     func(*steered, *mcptest.Client)
	}{
		"its own time limit": {options{broker: short}, func(*steered, *mcptest.Client) {}},
		"the session's end": {options{}, func(_ *steered, c *mcptest.Client) {
			assert.Equal(t, http.StatusNoContent, c.Delete().Status)
		}},
		"the broker's end": {options{}, func(g *steered, _ *mcptest.Client) { g.broker.Close() }},
		"the client's cancellation": {options{}, func(g *steered, c *mcptest.Client) {
			a := c.Post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c1"}}`)
			assert.Equal(t, http.StatusAccepted, a.Status)
			g.backend.Await(1, wait, mcptest.IsMethod(mcp.NotificationCancelled))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := steer(t, tc.options)
			c := g.client()
			o := openCall(t, c)
			o.next()
			o.cut()
			tc.end(g, c)
			g.gaveUp()
			g.counted(mcp.MethodToolsCall, "broker", "client_gone")
			if name == "its own time limit" {
				assert.Equal(t, lostAnswer, errorOf(t, rest(t, c.Stream(o.last))))
			}
		})
	}
}

func TestDetachedCallTimesOut(t *testing.T) {
	g := steer(t, options{}, func(c *config.Server) { c.Timeout = config.Duration(200 * time.Millisecond) })
	c := g.client()
	o := openCall(t, c)
	o.next()
	o.cut()
	assert.Equal(t, `Timeout: server "s" did not answer within 200ms`, errorOf(t, rest(t, c.Stream(o.last))))
	g.backend.Await(1, wait, mcptest.IsMethod(mcp.NotificationCancelled))
}

// Of too many calls that go on without their client the oldest is given up.
func TestTooManyDetachedCalls(t *testing.T) {
	g := steer(t, options{})
	c := g.client()
	for range 17 {
		o := openCall(t, c)
		o.next()
		o.cut()
	}
	g.gaveUp()
	g.counted(mcp.MethodToolsCall, "broker", "client_gone")
	assert.Equal(t, 1, g.requests(mcp.MethodToolsCall, "broker", "client_gone"))
	c.Delete()
	for range 16 {
		g.gaveUp()
	}
}

// What a backend asks while its client is cut off can still be answered.
func TestQuestionOnAStreamThatIsTakenUp(t *testing.T) {
	g := steer(t, options{})
	c := g.stranger()
	c.Capabilities = `{"elicitation":{}}`
	c.Initialize()
	o := openCall(t, c)
	o.next()
	o.cut()
	g.events <- "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\"}}\n\n"
	again := c.Stream(o.last)
	ev := <-again.Events
	assert.Contains(t, ev.Data, "elicitation/create")
	q := mcptest.Answer{Message: []byte(ev.Data)}
	a := c.Post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`, q.ID()))
	assert.Equal(t, http.StatusAccepted, a.Status)
	got := g.backend.Await(1, wait, func(r *mcptest.Request) bool { return strings.Contains(string(r.Body), "decline") })
	assert.Equal(t, `{"jsonrpc":"2.0","id":7,"result":{"action":"decline"}}`, string(got[0].Body))
	g.events <- "data: " + answer + "\n\n"
	assert.Equal(t, []string{answer}, rest(t, again))
}

// A backend that closes its stream before the answer is asked for the rest, for
// clients that could and that could not do so by themselves.
func TestBackendThatIsPolled(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			g := steer(t, options{})
			c := g.stranger()
			c.Revision = revision
			c.Initialize()
			o := openCall(t, c)
			if revision == "2025-11-25" {
				assert.Empty(t, o.next())
			}
			g.events <- "id: theirs-1\nretry: 10\ndata:\n\n"
			if revision == "2025-11-25" {
				assert.Empty(t, o.next(), "the retry")
			}
			g.events <- ""
			resumes := func(r *mcptest.Request) bool {
				return r.HTTPMethod == http.MethodGet && r.Header.Get(mcp.HeaderLastEventID) == "theirs-1"
			}
			got := g.backend.Await(1, wait, resumes)
			wrong := strings.Replace(answer, "c1", "c2", 1)
			require.Eventually(t, func() bool { return g.backend.NotifySession(got[0].Session, wrong) > 0 }, wait, 5*time.Millisecond)
			g.backend.CloseStreams()
			got = g.backend.Await(2, wait, resumes)
			require.Eventually(t, func() bool { return g.backend.NotifySession(got[1].Session, answer) > 0 }, wait, 5*time.Millisecond)
			assert.Equal(t, answer, o.next())
			assert.True(t, strings.HasPrefix(o.last, "pb-call-"), o.last)
			_, more := <-o.events
			assert.False(t, more)
		})
	}
}
