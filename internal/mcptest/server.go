package mcptest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcp"
)

// Path is the path of the MCP endpoint of every [Server].
const Path = "/mcp"

const anyPort = "127.0.0.1:0"

// Handler answers one JSON-RPC request of a client. It runs in the request's
// own goroutine; most use [Server.Reply] or [Server.Fail].
type Handler func(w http.ResponseWriter, r *Request)

// Server is an MCP server of the session era on 127.0.0.1.
type Server struct {
	// Name and Version are its serverInfo. Default "fake" and "1.0.0".
	Name, Version string
	// ProtocolVersion is what initialize answers. Empty: what the client
	// asked for when the gateway knows it, else the newest.
	ProtocolVersion string
	// Capabilities is the raw object of the InitializeResult. Empty: made
	// from the lists that are not nil, each with listChanged.
	Capabilities string
	// Instructions is the text of the InitializeResult; empty leaves it out.
	Instructions string
	// Tools, Prompts, Resources and Templates are the pages of the lists, each
	// a raw JSON array. Nil: the server does not have the capability. Tools
	// starts as one page with echo and add. See [Server.SetTools].
	Tools, Prompts, Resources, Templates []string
	// Sessions makes the server give out session ids and demand them. It
	// starts true.
	Sessions bool
	// LostStatus is the status for a session that the server does not know:
	// 404 (the start value), 400, or 0 to serve the request all the same.
	LostStatus int
	// Stream makes the server offer the GET stream; else 405. It starts true.
	Stream bool
	// SSE makes the server answer requests in an event stream, not in JSON.
	SSE bool
	// Prime starts each event stream with an event that has an id and empty
	// data, as revision 2025-11-25 allows.
	Prime bool
	// TLS makes it an https server, H2 lets it speak HTTP/2 there by ALPN.
	TLS, H2 bool
	// Intercept, when set, sees each HTTP request first, after it was
	// recorded, and returns true when it has answered it.
	Intercept func(w http.ResponseWriter, r *Request) bool

	// Listen is the "ip:port" to listen on; a free port of 127.0.0.1 if empty.
	Listen string

	tb   testing.TB
	addr string
	cert tls.Certificate
	rec  recorder

	mu       sync.Mutex
	http     *http.Server            // guarded by mu; nil while stopped
	serving  sync.WaitGroup          // one per serving http.Server
	handlers map[string]Handler      // guarded by mu
	lists    map[string][]string     // guarded by mu; by method, the pages
	sessions map[string]bool         // guarded by mu; the living ones
	nextID   int                     // guarded by mu
	inits    int                     // guarded by mu
	deletes  map[string]int          // guarded by mu; by session id
	streams  map[*outStream]struct{} // guarded by mu; the open GET streams
}

// New starts a server. configure, which may be nil, sets fields before the
// first request. The server ends with the test. Call it in the test's own
// goroutine.
func New(tb testing.TB, configure func(*Server)) *Server {
	tb.Helper()
	s := &Server{
		Name: "fake", Version: "1.0.0",
		Tools:    []string{DefaultTools},
		Sessions: true, LostStatus: http.StatusNotFound, Stream: true,
		tb: tb, addr: anyPort,
		handlers: map[string]Handler{},
		sessions: map[string]bool{},
		deletes:  map[string]int{},
		streams:  map[*outStream]struct{}{},
	}
	if configure != nil {
		configure(s)
	}
	if s.Listen != "" {
		s.addr = s.Listen
	}
	s.lists = map[string][]string{
		mcp.MethodToolsList: s.Tools, mcp.MethodPromptsList: s.Prompts,
		mcp.MethodResourcesList: s.Resources, mcp.MethodTemplatesList: s.Templates,
	}
	if s.TLS {
		s.cert = borrowCertificate()
	}
	require.NoError(tb, s.listen())
	tb.Cleanup(s.Stop)
	return s
}

// borrowCertificate returns the certificate for 127.0.0.1, ::1 and example.com
// that net/http/httptest has built in; it is its own authority.
func borrowCertificate() tls.Certificate {
	ts := httptest.NewTLSServer(http.NotFoundHandler())
	defer ts.Close()
	return ts.TLS.Certificates[0]
}

// URL is the address of the MCP endpoint. It stays the same after
// [Server.Restart].
func (s *Server) URL() string {
	if s.TLS {
		return "https://" + s.addr + Path
	}
	return "http://" + s.addr + Path
}

// Addr is the "host:port" the server listens on.
func (s *Server) Addr() string { return s.addr }

// Stop makes the server dead: its port refuses connections and every open one
// is cut. Sessions stay known. It is safe to call it twice.
func (s *Server) Stop() {
	s.mu.Lock()
	srv := s.http
	s.http = nil
	s.mu.Unlock()
	if srv != nil {
		_ = srv.Close() // cuts what is open; there is nothing to do about an error
	}
	s.CloseStreams()
	s.serving.Wait()
	s.rec.awaitIdle()
}

// Restart starts a stopped server again on the same port. Call it in the
// test's own goroutine.
func (s *Server) Restart() {
	s.tb.Helper()
	require.Eventually(s.tb, func() bool { return s.listen() == nil },
		10*time.Second, 10*time.Millisecond, "port %s is not free again", s.addr)
}

func (s *Server) listen() error {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return err
	}
	if s.addr == anyPort { // only New gets here, before anybody else has s
		s.addr = l.Addr().String()
	}
	srv := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	if s.TLS {
		srv.TLSConfig = s.TLSConfig()
		srv.ErrorLog = discardLog()
		if !s.H2 {
			srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
	}
	s.mu.Lock()
	s.http = srv
	s.mu.Unlock()
	s.serving.Go(func() {
		var err error
		if s.TLS {
			err = srv.ServeTLS(l, "", "")
		} else {
			err = srv.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			s.tb.Errorf("mcptest: server: %v", err)
		}
	})
	return nil
}

// Handle sets what answers method from now on, for all sessions. Nil restores
// the default.
func (s *Server) Handle(method string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h == nil {
		delete(s.handlers, method)
		return
	}
	s.handlers[method] = h
}

// SetTools replaces the pages of tools/list. It notifies nobody.
func (s *Server) SetTools(pages ...string) { s.SetList(mcp.MethodToolsList, pages...) }

// SetList replaces the pages of the list with the given method.
func (s *Server) SetList(method string, pages ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[method] = pages
}

// Forget drops all sessions, as a server that was restarted does. GET streams
// stay open; see [Server.CloseStreams].
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Sessioned returns how many sessions the server knows now.
func (s *Server) Sessioned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Initialized returns how many initialize requests were answered so far.
func (s *Server) Initialized() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inits
}

// Deleted returns how many DELETE requests came for the session.
func (s *Server) Deleted(session string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deletes[session]
}
