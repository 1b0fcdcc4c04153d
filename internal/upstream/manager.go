package upstream

import (
	"context"
	"crypto/sha256"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

// Sink is what a [Manager] tells about the servers: *registry.Registry. Its
// methods are called from several goroutines and must neither block nor call the
// Manager.
type Sink interface {
	reporter
	Add(config.Server)
	Remove(name string)
	Reorder(names []string)
}

// Manager keeps one [Client] and one watcher per configured server. It is safe
// for concurrent use.
type Manager struct {
	sink   Sink
	opt    Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	untried   atomic.Int64  // servers of the first Apply, and 1 until it is done
	triedDone chan struct{} // closed when untried reaches 0

	applying sync.Mutex // serializes Apply and Close

	mu      sync.RWMutex
	applied bool                // guarded by mu
	closed  bool                // guarded by mu
	running map[string]*running // guarded by mu

	ending sync.WaitGroup // watchers that are stopping
}

// running is one server. It is immutable.
type running struct {
	cfg    config.Server
	ca     [sha256.Size]byte // of the CA file's content
	client *Client
	w      *watcher
}

// NewManager returns a Manager without servers. Close must follow.
func NewManager(sink Sink, opt Options) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{
		sink: sink, opt: opt.withDefaults(), ctx: ctx, cancel: cancel,
		triedDone: make(chan struct{}), running: map[string]*running{},
	}
	m.untried.Store(1)
	return m
}

// Apply makes servers, whose names are unique, the ones that are watched, in
// their order. Servers that are reached in the same way as before go on without
// a break. It does not wait for any server. A server whose settings cannot be
// used, such as a missing CA file, is reported unavailable, and tried again at
// the next Apply.
func (m *Manager) Apply(servers []config.Server) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.RLock()
	old, first, closed := maps.Clone(m.running), !m.applied, m.closed
	m.mu.RUnlock()
	if closed {
		return
	}
	next := make(map[string]*running, len(servers))
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
		next[s.Name] = m.place(s, old[s.Name], first)
	}
	m.mu.Lock()
	m.running, m.applied = next, true
	m.mu.Unlock()
	for name := range old {
		if next[name] == nil {
			m.end(old[name])
			m.sink.Remove(name)
		}
	}
	m.sink.Reorder(names)
	if first {
		m.tried()
	}
}

// place makes the server run as s says; old is how it ran before, or nil.
func (m *Manager) place(s config.Server, old *running, first bool) *running {
	ca := caOf(&s)
	if old != nil && old.w != nil && sameTarget(old.cfg, s) && old.ca == ca {
		if !reflect.DeepEqual(old.cfg, s) {
			m.sink.Add(s)
		}
		return &running{cfg: s, ca: ca, client: old.client, w: old.w}
	}
	if old != nil {
		m.end(old)
	}
	m.sink.Add(s)
	client, err := NewClient(s, m.opt)
	if err != nil {
		m.opt.Log.Error("server cannot be used", "server", s.Name, "error", err)
		m.sink.SetUnavailable(s.Name, registry.ReasonUnreachable, err.Error())
		return &running{cfg: s, ca: ca}
	}
	tried := func() {}
	if first {
		m.untried.Add(1)
		tried = m.tried
	}
	r := &running{cfg: s, ca: ca, client: client, w: newWatcher(s, client, m.sink, m.opt, tried)}
	if old != nil && old.w != nil {
		r.w.subs.uris = old.w.subs.all() // clients do not know that it was replaced
	}
	r.w.start(m.ctx)
	return r
}

// sameTarget tells whether two configurations reach a server in the same way, so
// that a connection made for one serves the other.
func sameTarget(a, b config.Server) bool {
	return a.Name == b.Name && a.URL == b.URL && a.Poll == b.Poll &&
		maps.Equal(a.Headers, b.Headers) && reflect.DeepEqual(a.TLS, b.TLS)
}

// caOf tells contents of the server's CA file apart: authorities are rotated
// under the same name.
func caOf(s *config.Server) [sha256.Size]byte {
	if s.TLS == nil || s.TLS.CAFile == "" {
		return [sha256.Size]byte{}
	}
	// What cannot be read is told by NewClient.
	pem, _ := os.ReadFile(s.TLS.CAFile)
	return sha256.Sum256(pem)
}

// end stops a server's watcher; its session is ended in the background.
func (m *Manager) end(r *running) {
	if r.w == nil {
		return
	}
	r.w.stop()
	m.ending.Go(func() { <-r.w.done })
}

// tried counts down untried. It takes no lock: watchers call it while they hold
// theirs.
func (m *Manager) tried() {
	if m.untried.Add(-1) == 0 {
		close(m.triedDone)
	}
}

// Tried returns a channel that is closed when every server of the first Apply
// was tried once, with success or not.
func (m *Manager) Tried() <-chan struct{} { return m.triedDone }

// ClientAt returns the client of the named server if it is for the address that
// epoch names (registry.ClusterOf): a session that was opened at another address
// must not be used with it, nor the credential of one sent to the other.
func (m *Manager) ClientAt(name, epoch string) (*Client, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.running[name]
	if r == nil || r.client == nil || registry.ClusterOf(&r.cfg) != epoch {
		return nil, false
	}
	return r.client, true
}

// Client returns the client of the named server. It reports false for a name
// that is not configured, and for a server whose settings cannot be used.
func (m *Manager) Client(name string) (*Client, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.running[name]
	if r == nil || r.client == nil {
		return nil, false
	}
	return r.client, true
}

func (m *Manager) watcher(name string) (*watcher, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.running[name]
	if r == nil || r.w == nil {
		return nil, false
	}
	return r.w, true
}

// Suspect says that a request to the named server met a dead connection: its
// watcher looks at once whether it is there. It does not block.
func (m *Manager) Suspect(name string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if r := m.running[name]; r != nil && r.w != nil {
		r.w.suspect()
	}
}

// Close stops all watchers and ends their sessions at the servers, which takes
// at most 2 s. The sink keeps what it was told.
func (m *Manager) Close() {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.running))
	m.running, m.closed = map[string]*running{}, true
	m.mu.Unlock()
	for _, r := range all {
		m.end(r)
	}
	m.cancel()
	m.ending.Wait()
}
