package upstream

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/registry"
)

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func TestWatcherReadsEverything(t *testing.T) { // D1, D4, G1
	prompt := `{"name":"p","x":9007199254740993}`
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Tools = []string{mcptest.Page(mcptest.Tool("a")), mcptest.Page(mcptest.Tool("b"), `{ "name" : "\u0063", "big":1e400 }`)}
		s.Prompts = []string{mcptest.Page(prompt)}
		s.Resources = []string{`[{"uri":"file:///x","name":"x"}]`}
		s.Templates = []string{`[{"uriTemplate":"file:///{p}","name":"t"}]`}
		s.Instructions = "be \"kind\""
	})
	m, l := watch(t, s, fast)
	r, _ := l.await(0, is("ready"))
	closed(t, m.Tried())
	assert.Equal(t, []string{"a", "b", "c"}, r.tools())
	assert.Equal(t, `{ "name" : "\u0063", "big":1e400 }`, string(r.catalog.Tools[2].Raw), "bytes are kept")
	assert.Equal(t, []registry.Item{{Name: "p", Raw: []byte(prompt)}}, r.catalog.Prompts)
	assert.Equal(t, "file:///x", r.catalog.Resources[0].Name)
	assert.Equal(t, "file:///{p}", r.catalog.Templates[0].Name)
	assert.Equal(t, `be "kind"`, r.catalog.Instructions)
	assert.JSONEq(t, `{"name":"fake","version":"1.0.0"}`, string(r.catalog.ServerInfo))
	assert.Equal(t, registry.Facts{Revision: "2025-11-25", Sessions: true, LostStatus: 404, Stream: true}, r.facts)
	assert.JSONEq(t, `{"protocolVersion":"2025-11-25","clientInfo":{"name":"patchbay","version":"1.2.3"},
		"capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true}}}`,
		string(s.Method(mcp.MethodInitialize)[0].Params))
	assert.Len(t, s.Method(mcp.NotificationInitialized), 1)
}

func TestWatcherAsksOnlyForWhatIsDeclared(t *testing.T) {
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Capabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"logging":{}}`
		s.Prompts = nil
	})
	s.Handle(mcp.MethodPromptsList, func(w http.ResponseWriter, r *mcptest.Request) {
		s.Fail(w, r, mcp.CodeMethodNotFound, "Method not found")
	})
	_, l := watch(t, s, fast)
	r, _ := l.await(0, is("ready"))
	assert.Equal(t, []string{"echo", "add"}, r.tools())
	assert.Empty(t, r.catalog.Prompts, "declared, but unknown: empty")
	assert.Empty(t, s.Method(mcp.MethodResourcesList), "not declared: not asked for")
}

func TestListChangedIsSeen(t *testing.T) { // K9, M12
	s := mcptest.New(t, nil)
	_, l := watch(t, s, fast)
	_, next := l.await(0, is("ready"))
	s.AwaitStreams(1, wait)
	s.SetTools(mcptest.Page(mcptest.Tool("new")))
	told := time.Now()
	s.Notify(toolsChanged)
	r, _ := l.await(next, is("ready"))
	assert.Equal(t, []string{"new"}, r.tools())
	assert.Less(t, r.at.Sub(told), 2*time.Second)
}

func TestChangeDuringAFetchIsNotLost(t *testing.T) {
	s := mcptest.New(t, nil)
	_, l := watch(t, s, fast)
	_, next := l.await(0, is("ready"))
	s.AwaitStreams(1, wait)
	settle(t, s)
	before := len(s.Method(mcp.MethodToolsList))
	release := make(chan struct{})
	var fetches atomic.Int32
	s.Handle(mcp.MethodToolsList, func(w http.ResponseWriter, r *mcptest.Request) {
		n := fetches.Add(1)
		if n == 1 {
			<-release // the answer is old when it is sent
		}
		s.Reply(w, r, fmt.Sprintf(`{"tools":[%s]}`, mcptest.Tool(fmt.Sprintf("v%d", n))))
	})
	s.Notify(toolsChanged)
	s.Await(before+1, wait, mcptest.IsMethod(mcp.MethodToolsList))
	for range 50 { // a burst
		s.Notify(toolsChanged)
	}
	// The answer to this ping says that the burst before it was read.
	s.Notify(`{"jsonrpc":"2.0","id":"burst","method":"ping"}`)
	s.Await(1, wait, func(r *mcptest.Request) bool { return string(r.ID) == `"burst"` })
	close(release)
	r, _ := l.await(next, func(r report) bool { return r.what == "ready" && r.tools()[0] != "v1" })
	assert.Equal(t, []string{"v2"}, r.tools())
	settle(t, s)
	assert.LessOrEqual(t, fetches.Load(), int32(3), "a burst is one fetch or two")
}

// settle waits until the watcher has no fetch left to do: pings go on after it.
func settle(t *testing.T, s *mcptest.Server) {
	t.Helper()
	for last := -1; ; {
		n := len(s.Method(mcp.MethodToolsList))
		if n == last {
			return
		}
		last = n
		pings := len(s.Method(mcp.MethodPing))
		s.Await(pings+5, wait, mcptest.IsMethod(mcp.MethodPing))
	}
}

func TestWithoutAStreamTheListsArePolled(t *testing.T) {
	for name, configure := range map[string]func(*mcptest.Server){
		"no GET stream":      func(s *mcptest.Server) { s.Stream = false },
		"no listChanged":     func(s *mcptest.Server) { s.Capabilities = `{"tools":{}}` },
		"no sessions either": func(s *mcptest.Server) { s.Stream, s.Sessions = false, false },
	} {
		t.Run(name, func(t *testing.T) {
			s := mcptest.New(t, configure)
			_, l := watch(t, s, fast, func(c *config.Server) { c.Poll = config.Duration(20 * time.Millisecond) })
			r, next := l.await(0, is("ready"))
			assert.Equal(t, s.Sessions, r.facts.Sessions)
			assert.Equal(t, s.Stream, r.facts.Stream)
			n := len(s.Method(mcp.MethodToolsList))
			s.Await(n+3, wait, mcptest.IsMethod(mcp.MethodToolsList))
			assert.Equal(t, 1, l.count("ready"), "what has not changed is not reported")
			s.SetTools(mcptest.Page(mcptest.Tool("new")))
			r, _ = l.await(next, is("ready"))
			assert.Equal(t, []string{"new"}, r.tools())
		})
	}
}

func TestDeadServerIsSeenAtOnceAndComesBack(t *testing.T) { // D11, D12, M8, K13
	s := mcptest.New(t, nil)
	opt := fast
	opt.PingEvery = time.Hour // the broken stream alone must do
	_, l := watch(t, s, opt)
	_, next := l.await(0, is("ready"))
	s.AwaitStreams(1, wait)
	died := time.Now()
	s.Stop()
	r, next := l.await(next, is("unavailable"))
	assert.Equal(t, registry.ReasonUnreachable, r.reason)
	assert.Contains(t, r.message, "connection refused")
	assert.Less(t, r.at.Sub(died), 2*time.Second)
	s.Restart()
	r, _ = l.await(next, is("ready"))
	assert.Equal(t, []string{"echo", "add"}, r.tools())
}

func TestSuspectLooksAtOnce(t *testing.T) {
	s := mcptest.New(t, func(s *mcptest.Server) { s.Stream = false })
	opt := fast
	opt.PingEvery = time.Hour
	m, l := watch(t, s, opt)
	_, next := l.await(0, is("ready"))
	s.Stop()
	m.Suspect("s")
	m.Suspect("nobody")
	l.await(next, is("unavailable"))
}

func TestHangingServerIsUnavailable(t *testing.T) {
	s := mcptest.New(t, nil)
	opt := fast
	opt.PingTimeout = 50 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	_, l := watch(t, s, opt)
	_, next := l.await(0, is("ready"))
	s.Handle(mcp.MethodPing, func(_ http.ResponseWriter, r *mcptest.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s.ResetRequests()
	r, _ := l.await(next, is("unavailable"))
	assert.Equal(t, registry.ReasonUnreachable, r.reason)
	assert.GreaterOrEqual(t, len(s.Method(mcp.MethodPing)), 2, "one ping may get lost")
}

func TestClosedStreamsDoNotFlap(t *testing.T) {
	s := mcptest.New(t, nil)
	_, l := watch(t, s, fast)
	_, next := l.await(0, is("ready"))
	for i := range 5 {
		s.AwaitStreams(1, wait)
		tool := fmt.Sprintf("t%d", i)
		s.SetTools(mcptest.Page(mcptest.Tool(tool))) // nobody is told
		s.CloseStreams()
		var r report
		r, next = l.await(next, func(r report) bool { return r.what == "ready" && r.tools()[0] == tool })
		assert.Equal(t, []string{tool}, r.tools(), "read again after the stream was opened again")
	}
	assert.Zero(t, l.count("unavailable"))
	assert.Equal(t, 1, s.Initialized(), "the session is the same")
}

func TestLostSessionIsOpenedAgainUnnoticed(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus = status })
			_, l := watch(t, s, fast)
			r, _ := l.await(0, is("ready"))
			assert.Equal(t, status, r.facts.LostStatus)
			s.AwaitStreams(1, wait)
			s.Forget()
			s.CloseStreams()
			s.Await(2, wait, mcptest.IsMethod(mcp.MethodInitialize))
			s.AwaitStreams(1, wait)
			assert.Equal(t, 1, s.Sessioned())
			assert.Zero(t, l.count("unavailable"))
		})
	}
}

func TestServerThatForgetsAtOnceIsUnavailable(t *testing.T) {
	s := mcptest.New(t, nil)
	s.Handle(mcp.MethodToolsList, func(w http.ResponseWriter, _ *mcptest.Request) {
		w.WriteHeader(http.StatusNotFound)
	})
	_, l := watch(t, s, fast)
	r, next := l.await(0, is("unavailable"))
	assert.Equal(t, registry.ReasonProtocolError, r.reason)
	assert.Contains(t, r.message, "forgets its sessions")
	s.Handle(mcp.MethodToolsList, nil)
	l.await(next, is("ready"))
}

func TestReasons(t *testing.T) { // K14
	page := func(status int, contentType, body string) func(http.ResponseWriter, *mcptest.Request) bool {
		return func(w http.ResponseWriter, _ *mcptest.Request) bool {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for name, tc := range map[string]struct {
		configure func(*mcptest.Server)
		reason    registry.Reason
		message   string
	}{
		"401":         {func(s *mcptest.Server) { s.Intercept = page(401, "text/plain", "no") }, registry.ReasonCredentialInvalid, "check the headers"},
		"403":         {func(s *mcptest.Server) { s.Intercept = page(403, "text/plain", "no") }, registry.ReasonCredentialInvalid, "check the headers"},
		"old version": {func(s *mcptest.Server) { s.ProtocolVersion = "2024-11-05" }, registry.ReasonProtocolVersionUnsupported, `"2024-11-05"; supported are 2025-03-26, 2025-06-18, 2025-11-25`},
		"2026 only": {func(s *mcptest.Server) {
			s.Intercept = page(404, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
		}, registry.ReasonProtocolVersionUnsupported, "supported"},
		"HTML":     {func(s *mcptest.Server) { s.Intercept = page(200, "text/html", "<html>") }, registry.ReasonProtocolError, `"text/html"`},
		"bad JSON": {func(s *mcptest.Server) { s.Intercept = page(200, "application/json", "{") }, registry.ReasonProtocolError, "not a JSON-RPC message"},
		"other id": {func(s *mcptest.Server) {
			s.Intercept = page(200, "application/json", `{"jsonrpc":"2.0","id":77,"result":{}}`)
		}, registry.ReasonProtocolError, "not the response"},
		"404":            {func(s *mcptest.Server) { s.Intercept = page(404, "text/plain", "") }, registry.ReasonProtocolError, "check that its url"},
		"405":            {func(s *mcptest.Server) { s.Intercept = page(405, "text/plain", "") }, registry.ReasonProtocolError, "check that its url"},
		"500":            {func(s *mcptest.Server) { s.Intercept = page(500, "text/plain", "") }, registry.ReasonUnreachable, "HTTP 500"},
		"redirect":       {func(s *mcptest.Server) { s.Intercept = page(307, "text/plain", "") }, registry.ReasonProtocolError, "redirects"},
		"bad session id": {func(s *mcptest.Server) { s.Intercept = badSessionID }, registry.ReasonProtocolError, "session id"},
		"broken list":    {func(s *mcptest.Server) { s.Tools = []string{`{}`} }, registry.ReasonProtocolError, "tools/list is not a list"},
		"circles":        {func(s *mcptest.Server) { s.Tools = []string{`[],"nextCursor":"0"`} }, registry.ReasonProtocolError, "same cursor twice"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mcptest.New(t, tc.configure)
			m, l := watch(t, s, fast)
			r, _ := l.await(0, is("unavailable"))
			closed(t, m.Tried())
			assert.Equal(t, tc.reason, r.reason)
			assert.Contains(t, r.message, tc.message)
		})
	}
}

func badSessionID(w http.ResponseWriter, r *mcptest.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Mcp-Session-Id", "a b")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}}`, r.ID)
	return true
}

func TestFixedCredentialRecoversByItself(t *testing.T) {
	var bad atomic.Bool
	bad.Store(true)
	s := mcptest.New(t, func(s *mcptest.Server) {
		s.Intercept = func(w http.ResponseWriter, _ *mcptest.Request) bool {
			if bad.Load() {
				w.WriteHeader(http.StatusUnauthorized)
			}
			return bad.Load()
		}
	})
	_, l := watch(t, s, fast)
	_, next := l.await(0, is("unavailable"))
	s.Await(4, wait, mcptest.IsMethod(mcp.MethodInitialize))
	assert.Equal(t, 1, l.count("unavailable"), "the same news is not told twice")
	bad.Store(false)
	l.await(next, is("ready"))
}

func TestServersRequestsOnTheStreamAreAnswered(t *testing.T) {
	s := mcptest.New(t, nil)
	_, l := watch(t, s, fast)
	l.await(0, is("ready"))
	s.AwaitStreams(1, wait)
	s.Notify(`{"jsonrpc":"2.0","id":"x1","method":"ping"}`)
	s.Notify(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
	s.Notify("nonsense")
	bodies := s.Await(2, wait, func(r *mcptest.Request) bool { return r.HTTPMethod == http.MethodPost && r.Method == "" })
	require.Len(t, bodies, 2)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":"x1","result":{}}`, string(bodies[0].Body))
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`, string(bodies[1].Body))
	assert.Zero(t, l.count("unavailable"))
}
