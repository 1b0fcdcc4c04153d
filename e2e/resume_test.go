package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// A GET stream that broke off is taken up where it was: what came meanwhile is
// replayed, on that stream and no other; what cannot be replayed is told apart.
func TestResumeGetStream(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c, other := g.client(), g.client()
	first, newest, others := c.Stream(""), (*mcptest.GetStream)(nil), other.Stream("")
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 2 }, patience, 10*time.Millisecond)
	change := func(n int) {
		t.Helper()
		fake.SetTools(mcptest.Page(mcptest.Tool(fmt.Sprintf("t%d", n))))
		fake.Notify(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	require.True(t, fake.AwaitStreams(1, patience))
	change(1)
	var last string
	select {
	case ev := <-first.Events:
		last = ev.LastEventID
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	require.NotEmpty(t, last)
	others.Await(toolsChanged, patience)
	change(2)
	first.Await(toolsChanged, patience)
	first.Close()

	newest = c.Stream(last)
	ev := <-newest.Events
	assert.Contains(t, ev.Data, toolsChanged, "the one that was missed")
	assert.NotEqual(t, last, ev.LastEventID)
	select {
	case ev := <-newest.Events:
		t.Errorf("and no more, but %s", ev.Data)
	default:
	}
	newest.Close()

	stranger := other.Stream(last)
	for _, method := range []string{toolsChanged, "notifications/prompts/list_changed", "notifications/resources/list_changed"} {
		stranger.Await(method, patience)
	}
	g.kill()
	g.start()
	again := c.Stream(last)
	require.Equal(t, http.StatusOK, again.Status)
	again.Await("notifications/resources/list_changed", patience)
}

// An event id that a backend gave is taken to that backend, where only one can
// have given it.
func TestResumeAtTheBackend(t *testing.T) {
	one, two := mcptest.New(t, nil), mcptest.New(t, nil)
	fakeAnswer := `{"jsonrpc":"2.0","id":"call","result":{"content":[]}}`
	one.Handle("tools/call", func(w http.ResponseWriter, _ *mcptest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "id: backend-1\nretry: 10\ndata:\n\n")
	})
	g := up(t, entry("one", one), entry("two", two))
	c := g.client()
	const call = `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"one_echo","arguments":{}}}`
	isResume := func(r *mcptest.Request) bool {
		return r.HTTPMethod == http.MethodGet && r.Header.Get("Last-Event-Id") == "backend-1"
	}
	carried := make(chan *mcptest.Answer, 1)
	go func() { carried <- c.Post(call) }()
	got := one.Await(1, patience, isResume)
	require.Len(t, got, 1, "where the broker carries the call it comes back by itself")
	require.Eventually(t, func() bool { return one.NotifySession(got[0].Session, fakeAnswer) > 0 }, patience, 10*time.Millisecond)
	assert.Equal(t, fakeAnswer, string((<-carried).Message))

	before := g.calls("direct")
	a := c.Post(call)
	require.NoError(t, a.Err)
	assert.Equal(t, "id: backend-1\nretry: 10\ndata:\n\n", string(a.Body), "closed in good order, for the client to come back")
	assert.InDelta(t, before+1, g.calls("direct"), 0)
	one.ResetRequests()
	s := c.Stream("backend-1")
	require.Equal(t, http.StatusOK, s.Status)
	got = one.Await(1, patience, isResume)
	require.Len(t, got, 1)
	require.Eventually(t, func() bool { return one.NotifySession(got[0].Session, fakeAnswer) > 0 }, patience, 10*time.Millisecond)
	select {
	case ev := <-s.Events:
		assert.Equal(t, fakeAnswer, ev.Data)
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	require.Equal(t, http.StatusOK, c.CallTool("two_echo", `{}`).Status)
	assert.Equal(t, http.StatusBadRequest, c.Stream("backend-1").Status, "two can have given it now")
}
