package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"patchbay.dev/internal/mcp"
)

// Request is one HTTP request as it arrived. It is immutable.
type Request struct {
	// HTTPMethod, Path and RawQuery are of the request line, Host is the Host
	// header or :authority, Proto "HTTP/1.1" or "HTTP/2.0".
	HTTPMethod, Path, RawQuery, Host, Proto string
	// Header holds every header, canonical keys.
	Header http.Header
	// Body holds the exact bytes.
	Body []byte
	// Err says why the body could not be read whole.
	Err error
	// Session is the Mcp-Session-Id header.
	Session string
	// ID, Method and Params are of the JSON-RPC message in Body, the raw bytes
	// for ID and Params; empty where Body is not one message.
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	// Remote is the address of the connection: the same for requests that
	// shared it.
	Remote string

	ctx context.Context
}

func newRequest(hr *http.Request, body []byte) *Request {
	r := &Request{
		HTTPMethod: hr.Method, Path: hr.URL.Path, RawQuery: hr.URL.RawQuery,
		Host: hr.Host, Proto: hr.Proto, Header: hr.Header.Clone(), Body: body,
		Session: hr.Header.Get(mcp.HeaderSessionID), Remote: hr.RemoteAddr, ctx: hr.Context(),
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(body, &m) == nil {
		r.ID, r.Method, r.Params = m.ID, m.Method, m.Params
	}
	return r
}

// Context ends when the client of the request goes away or its handler returns.
func (r *Request) Context() context.Context { return r.ctx }

// Tool returns params.name.
func (r *Request) Tool() string {
	var p struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(r.Params, &p) // no params: no name
	return p.Name
}

// Arguments returns the raw bytes of params.arguments, {} when there are none.
func (r *Request) Arguments() json.RawMessage {
	var p struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(r.Params, &p) // no params: no arguments
	if len(p.Arguments) == 0 {
		return json.RawMessage(`{}`)
	}
	return p.Arguments
}

// recorder keeps the requests in the order of their arrival and wakes those who
// wait for something to happen. The zero value is ready.
type recorder struct {
	mu      sync.Mutex
	all     []*Request    // guarded by mu
	running int           // guarded by mu: requests being handled
	changed chan struct{} // guarded by mu: closed at the next change; nil when nobody waits
}

// add records r; the caller calls done when it was handled.
func (c *recorder) add(r *Request) (done func()) {
	c.mu.Lock()
	c.all = append(c.all, r)
	c.running++
	c.wakeLocked()
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.running--
		c.wakeLocked()
		c.mu.Unlock()
	}
}

func (c *recorder) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

func (c *recorder) wakeLocked() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// await calls cond after each change until it is true or the time is over.
func (c *recorder) await(within time.Duration, cond func() bool) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if cond() {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return cond()
		}
	}
}

// awaitIdle waits until no request is being handled. Handlers that a test
// blocks for ever would block it too: it gives up after 10 s.
func (c *recorder) awaitIdle() {
	c.await(10*time.Second, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.running == 0
	})
}

func (c *recorder) match(is func(*Request) bool) []*Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*Request
	for _, r := range c.all {
		if is(r) {
			out = append(out, r)
		}
	}
	return out
}

// Requests returns all requests so far, in the order of their arrival.
func (s *Server) Requests() []*Request {
	return s.rec.match(func(*Request) bool { return true })
}

// Method returns the requests so far with the JSON-RPC method.
func (s *Server) Method(method string) []*Request {
	return s.rec.match(IsMethod(method))
}

// ResetRequests forgets the recorded requests.
func (s *Server) ResetRequests() {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.rec.all = nil
}

// IsMethod returns a condition for [Server.Await].
func IsMethod(method string) func(*Request) bool {
	return func(r *Request) bool { return r.Method == method }
}

// Await waits until n recorded requests, old ones included, fulfil is, and
// returns them. If that does not happen, the test has failed and the result
// holds those there are.
func (s *Server) Await(n int, within time.Duration, is func(*Request) bool) []*Request {
	s.tb.Helper()
	ok := s.rec.await(within, func() bool { return len(s.rec.match(is)) >= n })
	got := s.rec.match(is)
	if !ok {
		s.tb.Errorf("mcptest: %d requests of the kind waited for, want %d within %v", len(got), n, within)
	}
	return got
}
