package upstream

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait is far more than anything here takes.
const wait = 10 * time.Second

// fast makes watchers quick enough for tests.
var fast = Options{
	Version: "1.2.3", PingEvery: 50 * time.Millisecond, PingTimeout: 500 * time.Millisecond,
	BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
}

func client(t *testing.T, url string, opt Options) *Client {
	t.Helper()
	c, err := NewClient(config.Server{Name: "s", URL: url}, opt)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	t.Cleanup(cancel)
	return ctx
}

// report is one thing that a ledger was told.
type report struct {
	what    string // add, remove, ready, unavailable
	name    string
	catalog *registry.Catalog
	facts   registry.Facts
	reason  registry.Reason
	message string
	at      time.Time
}

func (r report) tools() []string {
	var out []string
	for _, item := range r.catalog.Tools {
		out = append(out, item.Name)
	}
	return out
}

// The real sink.
var _ Sink = (*registry.Registry)(nil)

// ledger is a Sink that writes down what it is told.
type ledger struct {
	t       *testing.T
	mu      sync.Mutex
	reports []report      // guarded by mu
	order   []string      // guarded by mu
	changed chan struct{} // guarded by mu
}

func newLedger(t *testing.T) *ledger { return &ledger{t: t, changed: make(chan struct{})} }

func (l *ledger) add(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.at = time.Now()
	l.reports = append(l.reports, r)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) Add(s config.Server) { l.add(report{what: "add", name: s.Name}) }
func (l *ledger) Remove(name string)  { l.add(report{what: "remove", name: name}) }
func (l *ledger) Reorder(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = slices.Clone(names)
}

func (l *ledger) SetReady(name string, c *registry.Catalog, f registry.Facts) {
	l.add(report{what: "ready", name: name, catalog: c, facts: f})
}

func (l *ledger) SetUnavailable(name string, reason registry.Reason, message string) {
	l.add(report{what: "unavailable", name: name, reason: reason, message: message})
}

func (l *ledger) all() []report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

func (l *ledger) count(what string) int {
	n := 0
	for _, r := range l.all() {
		if r.what == what {
			n++
		}
	}
	return n
}

// await returns the first report from index from on for which is holds, and the
// index behind it.
func (l *ledger) await(from int, is func(report) bool) (report, int) {
	l.t.Helper()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for i := from; ; {
		l.mu.Lock()
		rest, changed := l.reports[i:], l.changed
		l.mu.Unlock()
		for _, r := range rest {
			i++
			if is(r) {
				return r, i
			}
		}
		select {
		case <-changed:
		case <-timer.C:
			require.FailNow(l.t, "the report did not come", "%+v", l.all())
		}
	}
}

func is(what string) func(report) bool { return func(r report) bool { return r.what == what } }

// watch starts a manager with one server at the fake.
func watch(t *testing.T, s *mcptest.Server, opt Options, change ...func(*config.Server)) (*Manager, *ledger) {
	t.Helper()
	l := newLedger(t)
	m := NewManager(l, opt)
	t.Cleanup(m.Close)
	cfg := config.Server{Name: "s", URL: s.URL(), Poll: config.Duration(time.Hour)}
	for _, c := range change {
		c(&cfg)
	}
	m.Apply([]config.Server{cfg})
	return m, l
}

func closed(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(wait):
		assert.Fail(t, "not closed in time")
	}
}
