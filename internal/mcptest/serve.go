package mcptest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcp"
)

// maxBody is the largest request body that the fake reads, in bytes.
const maxBody = 64 << 20

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// CAPEM returns the authority that signed the certificate of a TLS server, as
// PEM.
func (s *Server) CAPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Certificate[0]})
}

func (s *Server) serve(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	r := newRequest(hr, body)
	if err != nil {
		// Cut off in the middle: recorded, so that tests see what arrived.
		r.Err = err
	}
	done := s.rec.add(r)
	defer done()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.Intercept != nil && s.Intercept(w, r) {
		return
	}
	if r.Path != Path {
		http.NotFound(w, hr)
		return
	}
	switch r.HTTPMethod {
	case http.MethodPost:
		s.servePost(w, r)
	case http.MethodGet:
		s.serveGet(w, r)
	case http.MethodDelete:
		s.serveDelete(w, r)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *Server) servePost(w http.ResponseWriter, r *Request) {
	if !json.Valid(r.Body) {
		s.refuse(w, http.StatusBadRequest, mcp.CodeParseError, "Parse error")
		return
	}
	if r.Method == mcp.MethodInitialize {
		s.dispatch(w, r)
		return
	}
	if !s.known(w, r) {
		return
	}
	if len(r.ID) == 0 || r.Method == "" { // a notification or a response
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.dispatch(w, r)
}

// known checks the session of r, and answers it when it is not a living one.
func (s *Server) known(w http.ResponseWriter, r *Request) bool {
	if !s.Sessions {
		return true
	}
	s.mu.Lock()
	ok := s.sessions[r.Session]
	s.mu.Unlock()
	switch {
	case ok:
		return true
	case r.Session == "":
		s.refuse(w, http.StatusBadRequest, mcp.CodeServer, "Bad Request: Mcp-Session-Id header is required")
	case s.LostStatus == http.StatusNotFound:
		s.refuse(w, http.StatusNotFound, mcp.CodeSessionNotFound, "Session not found")
	case s.LostStatus == http.StatusBadRequest:
		s.refuse(w, http.StatusBadRequest, mcp.CodeServer, "Bad Request: No valid session ID provided")
	case s.LostStatus == 0:
		return true
	default:
		w.WriteHeader(s.LostStatus)
	}
	return false
}

func (s *Server) refuse(w http.ResponseWriter, status, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":%d,"message":%q},"id":null}`, code, message)
}

func (s *Server) dispatch(w http.ResponseWriter, r *Request) {
	s.mu.Lock()
	h := s.handlers[r.Method]
	s.mu.Unlock()
	if h == nil {
		h = s.answer
	}
	h(w, r)
}

func (s *Server) serveDelete(w http.ResponseWriter, r *Request) {
	if !s.Sessions {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	s.mu.Lock()
	ok := s.sessions[r.Session]
	delete(s.sessions, r.Session)
	s.deletes[r.Session]++
	s.mu.Unlock()
	if !ok {
		s.refuse(w, http.StatusNotFound, mcp.CodeSessionNotFound, "Session not found")
		return
	}
	w.WriteHeader(http.StatusOK)
}

// Reply answers r with the raw result, in JSON or in SSE as the server is set.
func (s *Server) Reply(w http.ResponseWriter, r *Request, result string) {
	s.Send(w, r, string(mcp.Result(r.ID, []byte(result))))
}

// Fail answers r with a JSON-RPC error, HTTP status 200.
func (s *Server) Fail(w http.ResponseWriter, r *Request, code int, message string) {
	s.Send(w, r, string((&mcp.Error{Code: code, Message: message}).Body(r.ID)))
}

// Send answers r with raw JSON-RPC messages: in SSE one event each; in JSON the
// last one alone.
func (s *Server) Send(w http.ResponseWriter, _ *Request, messages ...string) {
	if s.SSE {
		w.Header().Set("Content-Type", "text/event-stream")
		s.prime(w)
		for _, m := range messages {
			Event(w, m)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, messages[len(messages)-1])
}

func (s *Server) prime(w http.ResponseWriter) {
	if !s.Prime {
		return
	}
	s.mu.Lock()
	s.nextID++
	n := s.nextID
	s.mu.Unlock()
	_, _ = io.WriteString(w, "id: prime-"+strconv.Itoa(n)+"\ndata:\n\n")
}

// Event writes one SSE event with data and flushes it. The Content-Type is the
// caller's task.
func Event(w http.ResponseWriter, data string) {
	var b bytes.Buffer
	for line := range bytes.SplitSeq([]byte(data), []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, _ = w.Write(b.Bytes())
	_ = http.NewResponseController(w).Flush() // fails only when the client is gone
}

// TLSConfig returns a new server-side configuration with the certificate of a
// TLS server, for other servers that its CAPEM shall vouch for.
func (s *Server) TLSConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12}
}

// WriteFile writes data to a file that ends with the test, and returns its path.
// Call it in the test's own goroutine.
func WriteFile(tb testing.TB, data []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "file.pem")
	require.NoError(tb, os.WriteFile(path, data, 0o600))
	return path
}
