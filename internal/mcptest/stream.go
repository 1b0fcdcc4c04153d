package mcptest

import (
	"context"
	"net/http"
	"time"
)

// streamBuffer is how many notifications may wait for a slow reader of a GET
// stream before Notify waits for it.
const streamBuffer = 1024

// outStream is one open GET stream.
type outStream struct {
	session string
	out     chan string
	end     context.CancelFunc
}

func (s *Server) serveGet(w http.ResponseWriter, r *Request) {
	if !s.Stream {
		w.Header().Set("Allow", "POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if !s.known(w, r) {
		return
	}
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	st := &outStream{session: r.Session, out: make(chan string, streamBuffer), end: end}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s.prime(w)
	_ = http.NewResponseController(w).Flush() // fails only when the client is gone
	s.mu.Lock()
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	s.rec.wake()
	defer func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
		s.rec.wake()
	}()
	for {
		select {
		case m := <-st.out:
			Event(w, m)
		case <-ctx.Done():
			return
		}
	}
}

// Notify sends the raw message on every open GET stream, and returns on how
// many.
func (s *Server) Notify(raw string) int {
	return s.notify(raw, func(*outStream) bool { return true })
}

// NotifySession sends the raw message on the GET streams of one session.
func (s *Server) NotifySession(session, raw string) int {
	return s.notify(raw, func(st *outStream) bool { return st.session == session })
}

func (s *Server) notify(raw string, to func(*outStream) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for st := range s.streams {
		if !to(st) {
			continue
		}
		select {
		case st.out <- raw:
			n++
		default:
			s.tb.Errorf("mcptest: a GET stream of session %q has %d messages waiting", st.session, streamBuffer)
		}
	}
	return n
}

// CloseStreams ends the open GET streams properly, as a proxy does after its
// time limit.
func (s *Server) CloseStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.end()
	}
}

// Streams returns how many GET streams are open now.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// AwaitStreams waits until exactly n GET streams are open, and tells whether
// that happened; if not, the test has failed.
func (s *Server) AwaitStreams(n int, within time.Duration) bool {
	s.tb.Helper()
	if s.rec.await(within, func() bool { return s.Streams() == n }) {
		return true
	}
	s.tb.Errorf("mcptest: %d GET streams open, want %d within %v", s.Streams(), n, within)
	return false
}
