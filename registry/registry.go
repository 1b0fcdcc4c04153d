package registry

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"patchbay.dev/internal/config"
)

// Registry is the one place where the catalog changes.
type Registry struct {
	log  *slog.Logger
	snap atomic.Pointer[Snapshot]

	mu       sync.Mutex
	order    []*entry                  // guarded by mu
	routable func(cluster string) bool // guarded by mu
	subs     map[int]func(Event)       // guarded by mu
	nextSub  int                       // guarded by mu
	logged   map[Problem]bool          // guarded by mu; problems already logged
}

// entry is what the Registry knows of one server. It is replaced, not changed,
// so that Snapshots may share it.
type entry struct {
	cfg     config.Server
	target  target
	state   State
	reason  Reason
	message string
	facts   Facts
	since   time.Time // of state and reason
	catalog *Catalog
	items   *rendered // of catalog; nil before the first
}

// New returns an empty Registry. What it has to say about bad tools goes to log.
func New(log *slog.Logger) *Registry {
	r := &Registry{log: log, subs: map[int]func(Event){}, logged: map[Problem]bool{}}
	r.snap.Store(build(nil, nil))
	return r
}

// Snapshot returns the current catalog. It never blocks.
func (r *Registry) Snapshot() *Snapshot { return r.snap.Load() }

// Add adds a server at the end of the order, or, where one of that name exists,
// replaces its configuration in its place. A replaced server keeps its catalog
// and state until its watcher reports.
func (r *Registry) Add(s config.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &entry{cfg: s, target: targetOf(&s), since: time.Now()}
	if i := r.indexLocked(s.Name); i >= 0 {
		old := r.order[i]
		e.state, e.reason, e.message, e.facts, e.catalog, e.since = old.state, old.reason, old.message, old.facts, old.catalog, old.since
		switch {
		case old.cfg.ToolPrefix() == s.ToolPrefix(): // all that rendering looks at but the name
			e.items = old.items
		case old.catalog != nil:
			e.items = render(&s, old.catalog, nil)
		}
		r.order = replaceAt(r.order, i, e)
	} else {
		r.order = append(slices.Clone(r.order), e)
	}
	r.publishLocked()
}

// Remove removes a server and everything of it. It does nothing when there is
// none of that name.
func (r *Registry) Remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.indexLocked(name)
	if i < 0 {
		return
	}
	r.order = slices.Delete(slices.Clone(r.order), i, i+1)
	r.publishLocked()
}

// Reorder puts the servers into the order of names, which decides conflicts.
// Servers that are not named come last, in the order they had.
func (r *Registry) Reorder(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rank := make(map[string]int, len(names))
	for i, n := range names {
		rank[n] = i - len(names)
	}
	order := slices.Clone(r.order)
	slices.SortStableFunc(order, func(a, b *entry) int { return rank[a.cfg.Name] - rank[b.cfg.Name] })
	if slices.Equal(order, r.order) {
		return
	}
	r.order = order
	r.publishLocked()
}

// Restore gives a server that was never connected the catalog that it had before
// a restart: its names are taken, and calls are answered as to a server that is
// not available. It does nothing to a server that has a catalog already.
func (r *Registry) Restore(name string, c *Catalog, f Facts) {
	r.update(name, func(e *entry) {
		if e.catalog == nil {
			e.facts, e.catalog, e.items = f, c, render(&e.cfg, c, e.items)
		}
	})
}

// SetReady says that the server is connected, what it offers and what was learnt
// about it. The caller must not change the catalog afterwards.
func (r *Registry) SetReady(name string, c *Catalog, f Facts) {
	r.update(name, func(e *entry) {
		e.state, e.reason, e.message, e.facts = Ready, ReasonNone, "", f
		if e.catalog != c {
			e.catalog, e.items = c, render(&e.cfg, c, e.items)
		}
	})
}

// SetUnavailable says that the server cannot be used, and why; message is shown
// to operators. The server's last catalog is kept, so that its names stay taken
// and a call can be told apart from one to an unknown tool.
func (r *Registry) SetUnavailable(name string, reason Reason, message string) {
	r.update(name, func(e *entry) { e.state, e.reason, e.message = Unavailable, reason, message })
}

// SetRoutable sets the test by which clusters can take direct calls now, and
// applies it. Call it again whenever an answer may have changed.
func (r *Registry) SetRoutable(routable func(cluster string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routable = routable
	r.publishLocked()
}

// Subscribe calls f after every change, in order, starting with the next one.
// f must not block. The returned function ends it.
func (r *Registry) Subscribe(f func(Event)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextSub
	r.nextSub++
	r.subs[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subs, id)
	}
}

func (r *Registry) update(name string, change func(*entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.indexLocked(name)
	if i < 0 {
		return // removed while its watcher was on the way
	}
	was := r.order[i]
	e := *was
	change(&e)
	if e.state != was.state || e.reason != was.reason {
		e.since = time.Now()
	}
	r.order = replaceAt(r.order, i, &e)
	r.publishLocked()
}

func (r *Registry) indexLocked(name string) int {
	return slices.IndexFunc(r.order, func(e *entry) bool { return e.cfg.Name == name })
}

func (r *Registry) publishLocked() {
	before := r.snap.Load()
	after := build(r.order, r.routable)
	r.snap.Store(after)
	r.logProblemsLocked(after)
	ev := Event{Before: before, After: after, Changes: diff(before, after)}
	for _, f := range r.subs {
		f(ev)
	}
}

// maxProblemLines bounds the lines of one logProblemsLocked: a backend can make
// any number of bad tools. All are in the server's status.
const maxProblemLines = 100

// logProblemsLocked logs each problem once, when it appears.
func (r *Registry) logProblemsLocked(s *Snapshot) {
	now := make(map[Problem]bool, len(r.logged))
	lines := 0
	for _, srv := range s.servers {
		for _, p := range srv.Problems {
			now[p] = true
			if lines++; !r.logged[p] && lines <= maxProblemLines {
				r.log.Warn("tool problem", "server", p.Server, "item", p.Item, "reason", p.Reason, "message", p.Message)
			}
		}
	}
	r.logged = now
}

func replaceAt(s []*entry, i int, e *entry) []*entry {
	s = slices.Clone(s)
	s[i] = e
	return s
}
