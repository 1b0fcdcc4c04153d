package session

import (
	"sync"
	"sync/atomic"
)

// Session is one client's session. It is a handle: two Sessions of the same
// token are the same session.
type Session struct {
	table  *Table
	token  string
	claims Claims
}

// Backend is a client session's session with one server. It is immutable once
// OpenBackend has returned it.
type Backend struct {
	// ID is the backend's session id; empty when the server gives none.
	ID string
	// Epoch identifies the address and configuration of the server with which
	// the session was opened: with another one it is stale.
	Epoch string
	// Revision is the protocolVersion that the server agreed to.
	Revision string
	// Address is which of the server's addresses holds the session.
	Address string
}

// live is what memory holds of one session.
type live struct {
	session *Session
	used    atomic.Int64 // Unix nanoseconds of the last use

	mu       sync.Mutex
	holds    int           // guarded by mu: streams, running calls, flights
	ended    bool          // guarded by mu: by End or expiry; never unset
	done     chan struct{} // guarded by mu: made when asked for, closed when ended
	backends []slot        // guarded by mu: few, so a list
	flights  []*flight     // guarded by mu: openings under way, one a server
	level    string        // guarded by mu: of logging/setLevel; empty when none was set
}

type slot struct {
	server  string
	backend *Backend
}

// Claims returns what the id carries. It must not be written to.
func (s *Session) Claims() *Claims { return &s.claims }

// Token returns the id as the client sends it.
func (s *Session) Token() string { return s.token }

// Backend returns the session with server from memory, if it was opened in this
// epoch, and marks the session used.
func (s *Session) Backend(server, epoch string) (*Backend, bool) {
	l := s.table.peek(s)
	if l == nil {
		return nil, false
	}
	l.used.Store(s.table.opt.Now().UnixNano())
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.backendLocked(server)
	return b, b != nil && b.Epoch == epoch
}

// Backends returns the sessions with all servers, by the servers' names.
func (s *Session) Backends() map[string]*Backend {
	l := s.table.peek(s)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]*Backend, len(l.backends))
	for _, sl := range l.backends {
		all[sl.server] = sl.backend
	}
	return all
}

// SetLevel keeps the least severe level of log messages that the client wants
// (2025-11-25, Logging). It is forgotten with the session's memory.
func (s *Session) SetLevel(level string) error {
	l, err := s.table.entry(s)
	if err != nil {
		return err
	}
	defer l.release(s.table)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
	return nil
}

// Level returns what SetLevel kept; empty when nothing was set.
func (s *Session) Level() string {
	l := s.table.peek(s)
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

// Hold keeps the session in memory, whatever the idle timeout, until release is
// called. Streams and running calls hold their session.
func (s *Session) Hold() (release func()) {
	l, err := s.table.entry(s)
	if err != nil {
		return func() {} // Done tells
	}
	return sync.OnceFunc(func() { l.release(s.table) })
}

// Done returns a channel that is closed when the session is ended, by DELETE or
// because its lifetime is over. Only who holds the session may wait on it: idle
// expiry forgets the channel.
func (s *Session) Done() <-chan struct{} {
	l, err := s.table.entry(s)
	if err != nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	defer l.release(s.table)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended {
			close(l.done)
		}
	}
	return l.done
}

func (l *live) release(t *Table) {
	l.used.Store(t.opt.Now().UnixNano())
	l.mu.Lock()
	l.holds--
	l.mu.Unlock()
}

func (l *live) backendLocked(server string) *Backend {
	for i := range l.backends {
		if l.backends[i].server == server {
			return l.backends[i].backend
		}
	}
	return nil
}

// takeLocked removes the session with server and returns it, nil if none.
func (l *live) takeLocked(server string) *Backend {
	for i := range l.backends {
		if l.backends[i].server == server {
			b := l.backends[i].backend
			l.backends = append(l.backends[:i], l.backends[i+1:]...)
			return b
		}
	}
	return nil
}

// drop forgets the session with server, also one that is being opened, and
// returns it.
func (l *live) drop(server string) *Backend {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		if f.server == server {
			f.dropped = true
		}
	}
	return l.takeLocked(server)
}

// end closes everything of an entry that was taken out of the table for good.
func (l *live) end(t *Table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.done != nil {
		close(l.done)
	}
	l.closeLocked(t)
}

// free closes the backend sessions of an entry that was taken out of the table
// while nobody held it; the session goes on.
func (l *live) free(t *Table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked(t)
}

func (l *live) closeLocked(t *Table) {
	if t.opt.Forgotten != nil {
		t.opt.Forgotten(l.session.claims.ID)
	}
	for _, sl := range l.backends {
		t.closer.add(sl.server, sl.backend)
	}
	l.backends = nil
}
