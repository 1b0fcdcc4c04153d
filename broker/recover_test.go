package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/session"
	"patchbay.dev/router"
)

// direct is a call as Envoy retries it: with the backend's name for the tool and
// without the client's session.
const direct = `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo","arguments":{"n":9007199254740993}}}`

func (g *gateway) sealed(r router.Recovery) string {
	return g.keys.Seal(session.PurposeRecover, r.Append(nil))
}

// recovered posts a direct call as Envoy does when it met a dead session.
func recovered(c *mcptest.Client, token string) *mcptest.Answer {
	return c.Post(direct, mcp.HeaderSessionID, "the-backend's", private.HeaderRecover, token)
}

// A call that met a lost session runs once, in a new one; nobody notices.
func TestRecoveryOpensANewSessionAndDeliversOnce(t *testing.T) {
	for _, lost := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			s := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus = lost })
			g := start(t, options{servers: []config.Server{{Name: "s", URL: s.URL()}}})
			c := g.client()
			c.CallTool("s_echo", `{}`)
			s.Forget()
			opened := s.Initialized()
			a := recovered(c, g.sealed(router.Recovery{Token: c.Session, Server: "s"}))
			require.Equal(t, http.StatusOK, a.Status, a)
			assert.Contains(t, string(a.Body), `{"n":9007199254740993}`)
			assert.Equal(t, opened+1, s.Initialized())
			a = c.CallTool("s_echo", `{}`)
			assert.Equal(t, http.StatusOK, a.Status)
			assert.Equal(t, opened+1, s.Initialized(), "the new session is the client's from now on")
			g.counted(mcp.MethodToolsCall, "recovered", "ok")
		})
	}
}

// Hundred calls that meet it at once share the new session, and each runs once.
func TestManyRecoveriesShareOneSession(t *testing.T) {
	s := mcptest.New(t, nil)
	g := start(t, options{servers: []config.Server{{Name: "s", URL: s.URL()}}})
	c := g.client()
	c.CallTool("s_echo", `{}`)
	s.Forget()
	s.ResetRequests()
	opened := s.Initialized()
	token := g.sealed(router.Recovery{Token: c.Session, Server: "s"})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			a := c.Post(strings.Replace(direct, "9007199254740993", fmt.Sprint(1000+i), 1), private.HeaderRecover, token)
			assert.Equal(t, http.StatusOK, a.Status, a)
			assert.Contains(t, string(a.Body), fmt.Sprint(1000+i))
		})
	}
	wg.Wait()
	assert.Equal(t, opened+1, s.Initialized())
	served := map[string]int{}
	alive := s.Method(mcp.NotificationInitialized)[0].Session
	for _, r := range s.Method(mcp.MethodToolsCall) {
		if r.Session == alive {
			served[string(r.Arguments())]++
		}
	}
	assert.Len(t, served, 100)
	for args, n := range served {
		assert.Equal(t, 1, n, "%s ran more than once", args)
	}
}

// Nothing but a value that the gateway sealed for this purpose counts: without
// one the request is judged as any other, here as one of a client without a
// session, that calls a tool by a name that is none.
func TestForgedRecoveryIsIgnored(t *testing.T) {
	one, _, cfg := two(t)
	g := start(t, options{servers: cfg})
	c := g.client()
	good := g.sealed(router.Recovery{Token: c.Session, Server: "one"})
	stranger := session.NewKeyring([32]byte{9})
	plain := router.Recovery{Token: c.Session, Server: "one"}.Append(nil)
	for name, token := range map[string]string{
		"made up":         "x",
		"a session id":    c.Session,
		"another purpose": g.keys.Seal(session.PurposeSession, plain),
		"another key":     stranger.Seal(session.PurposeRecover, plain),
		"altered":         good[:len(good)-2] + "AA",
		"other content":   g.keys.Seal(session.PurposeRecover, []byte("one")),
	} {
		a := recovered(c, token)
		assert.Equal(t, http.StatusNotFound, a.Status, name)
		assert.Equal(t, mcp.CodeSessionNotFound, a.Code(), name)
		a = c.Post(direct, private.HeaderRecover, token)
		assert.Equal(t, "Tool not found: echo", a.ErrorMessage(), name)
	}
	assert.Empty(t, one.Method(mcp.MethodToolsCall))
	assert.Equal(t, http.StatusOK, recovered(c, good).Status, "the good one works all the same")
	// It counts for calls only.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, g.url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set(private.HeaderRecover, good)
	resp, err := c.HTTP.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

// What changes between the two ways.
func TestRecoveryOfWhatIsGoneMeanwhile(t *testing.T) {
	one, _, cfg := two(t)
	g := start(t, options{servers: cfg})
	c, ended := g.client(), g.client()
	require.Equal(t, http.StatusNoContent, ended.Delete().Status)

	a := recovered(c, g.sealed(router.Recovery{Token: ended.Session, Server: "one"}))
	assert.Equal(t, http.StatusNotFound, a.Status)
	assert.Equal(t, "the session has ended: send initialize again", a.ErrorMessage())
	assert.Equal(t, `"c1"`, string(a.ID()))
	a = recovered(c, g.sealed(router.Recovery{Token: c.Session, Server: "one", Principal: "somebody else"}))
	assert.Equal(t, http.StatusNotFound, a.Status)
	g.counted(mcp.MethodToolsCall, "recovered", "session_unknown")

	g.manager.Apply(cfg[1:])
	a = recovered(c, g.sealed(router.Recovery{Token: c.Session, Server: "one"}))
	assert.Equal(t, http.StatusServiceUnavailable, a.Status)
	assert.Equal(t, mcp.CodeUnavailable, a.Code())
	assert.Equal(t, `"c1"`, string(a.ID()))
	g.counted(mcp.MethodToolsCall, "recovered", "unavailable")
	assert.Empty(t, one.Method(mcp.MethodToolsCall))
}

// K13, M6: a dead backend is 503, and the call has not run; so is one where no
// session can be opened.
func TestUnavailable(t *testing.T) {
	one, other, cfg := two(t)
	g := start(t, options{servers: cfg})
	c := g.client()
	one.Stop()
	other.Handle(mcp.MethodInitialize, func(w http.ResponseWriter, _ *mcptest.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for _, name := range []string{"one", "other"} {
		a := recovered(c, g.sealed(router.Recovery{Token: c.Session, Server: name}))
		assert.Equal(t, http.StatusServiceUnavailable, a.Status, a)
		assert.Equal(t, fmt.Sprintf("server %q is unavailable; the gateway keeps trying to reach it", name), a.ErrorMessage())
	}
	a := c.CallTool("other_echo", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status)
	assert.Empty(t, other.Method(mcp.MethodToolsCall))
}

// A backend that answers the call itself with 404 or 400 has not lost the
// session: it is not opened anew, and the call is not sent again.
func TestAnswerWithStatusOfALostSessionIsNone(t *testing.T) {
	for status, code := range map[int]int{http.StatusNotFound: mcp.CodeMethodNotFound, http.StatusBadRequest: -5} {
		s := mcptest.New(t, func(s *mcptest.Server) { s.LostStatus = status })
		s.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, r *mcptest.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m"}}`, r.ID, code)
		})
		g := start(t, options{servers: []config.Server{{Name: "s", URL: s.URL()}}})
		opened := s.Initialized()
		a := g.client().CallTool("s_echo", `{}`)
		assert.Equal(t, code, a.Code(), a)
		assert.Equal(t, opened+1, s.Initialized())
		assert.Len(t, s.Method(mcp.MethodToolsCall), 1)
	}
}

// A backend that forgets every session at once is told apart from a dead one.
func TestSessionThatIsNeverKnownIsAnError(t *testing.T) {
	s := mcptest.New(t, nil)
	s.Handle(mcp.MethodToolsCall, nil)
	g := start(t, options{servers: []config.Server{{Name: "s", URL: s.URL()}}})
	c := g.client()
	s.Handle(mcp.MethodToolsCall, func(w http.ResponseWriter, _ *mcptest.Request) { w.WriteHeader(http.StatusNotFound) })
	a := c.CallTool("s_echo", `{}`)
	assert.Equal(t, http.StatusBadGateway, a.Status)
	assert.Equal(t, `server "s" does not know the session that it has just opened`, a.ErrorMessage())
	assert.Len(t, s.Method(mcp.MethodToolsCall), 2, "tried again once")
}
