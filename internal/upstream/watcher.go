package upstream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

// reporter is what a watcher tells about its server. *registry.Registry is one.
type reporter interface {
	SetReady(name string, c *registry.Catalog, f registry.Facts)
	SetUnavailable(name string, reason registry.Reason, message string)
}

const (
	// shortSession is how long a session must have lived for its loss to be
	// nothing unusual.
	shortSession = time.Second
	// maxShort is how many short sessions in a row make a server unusable.
	maxShort = 3
	// endTimeout bounds the DELETE of a watcher's session.
	endTimeout = 2 * time.Second
)

// watcher holds the catalog of one server current. Its run goroutine owns every
// field below the line.
type watcher struct {
	name   string
	poll   time.Duration
	client *Client
	opt    Options
	log    *slog.Logger
	to     reporter
	// suspected holds a token when somebody met a dead server.
	suspected chan struct{}
	// subs are what clients are subscribed to.
	subs subscriptions
	// tried is called once, when the first attempt has come to a result.
	tried func()

	mu      sync.Mutex
	stopped bool // guarded by mu: nothing is reported any more
	cancel  context.CancelFunc
	done    chan struct{}

	// ---- owned by run
	ready      bool              // what was reported last
	catalog    *registry.Catalog // reported last; nil before the first
	facts      registry.Facts    // reported last
	reason     registry.Reason   // reported last, while not ready
	message    string            // reported last, while not ready
	lostStatus int               // by the probe
	probed     bool
	at         string    // the address of the present session, if it is one of a name's
	moved      time.Time // when it last moved from one address to another
	short      int       // short sessions in a row
	backoff    backoff
}

func newWatcher(cfg config.Server, client *Client, to reporter, opt Options, tried func()) *watcher {
	return &watcher{
		name: cfg.Name, poll: time.Duration(cfg.Poll), client: client, opt: opt,
		log: opt.Log.With("server", cfg.Name), to: to,
		suspected: make(chan struct{}, 1), tried: sync.OnceFunc(tried),
		done:    make(chan struct{}),
		backoff: backoff{min: opt.BackoffMin, max: opt.BackoffMax},
	}
}

// start begins to watch. stop must follow.
func (w *watcher) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		defer w.client.Close()
		defer w.tried()
		w.run(ctx)
	}()
}

// stop ends the watching; when it has returned, nothing is reported any more.
// The watcher's session is ended in the background: await done for that.
func (w *watcher) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.cancel()
}

// suspect makes the watcher look at once whether the server is there.
func (w *watcher) suspect() {
	select {
	case w.suspected <- struct{}{}:
	default: // it will look anyway
	}
}

// run connects again and again until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.moves(ctx, err) {
			continue
		}
		pause := w.afterLoss(err, time.Since(began))
		if !sleep(ctx, pause) {
			return
		}
	}
}

// moves tells whether the session is lost with its address alone: the server has
// others, which serve its clients meanwhile. If they do not, the next attempt
// will tell.
func (w *watcher) moves(ctx context.Context, err error) bool {
	reason, _ := reasonOf(err)
	if !w.ready || time.Since(w.moved) < shortSession || reason != registry.ReasonUnreachable ||
		!w.client.Elsewhere(ctx, Ref{Address: w.at}) {
		return false
	}
	w.moved = time.Now()
	return true
}

// afterLoss reports what err means and returns how long to wait before the next
// attempt. A session that the server forgot is no loss of the server.
func (w *watcher) afterLoss(err error, lived time.Duration) time.Duration {
	if !errors.Is(err, ErrLost) {
		w.short = 0
		w.reportUnavailable(reasonOf(err))
		return w.backoff.pause()
	}
	if lived >= shortSession {
		w.short = 0
		return 0
	}
	if w.short++; w.short >= maxShort {
		w.reportUnavailable(registry.ReasonProtocolError,
			"the server forgets its sessions at once: if it runs in several instances, requests of one session must reach the same one")
	}
	return w.backoff.pause()
}

func reasonOf(err error) (registry.Reason, string) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason, e.Message
	}
	return registry.ReasonProtocolError, "the server cannot be used: look into its log"
}

// reportReady reports what has changed since the last report.
func (w *watcher) reportReady(c *registry.Catalog, f registry.Facts) {
	if w.ready && w.facts == f && sameCatalog(w.catalog, c) {
		return
	}
	if !w.ready {
		w.log.Info("server connected", "tools", len(c.Tools), "revision", f.Revision, "stream", f.Stream)
	}
	w.ready, w.catalog, w.facts = true, c, f
	w.report(func() { w.to.SetReady(w.name, c, f) })
}

func (w *watcher) reportUnavailable(reason registry.Reason, message string) {
	if !w.ready && w.reason == reason && w.message == message {
		return
	}
	w.log.Warn("server unavailable", "reason", reason, "message", message)
	w.ready, w.reason, w.message = false, reason, message
	w.report(func() { w.to.SetUnavailable(w.name, reason, message) })
}

// report calls f unless the watcher was stopped, and never while stop returns:
// f must not stop this watcher.
func (w *watcher) report(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	f()
	w.tried()
}

// endSession ends a session at a server that may still be there. why is the
// error that the session ended with.
func (w *watcher) endSession(ref Ref, why error) {
	reason, _ := reasonOf(why)
	gone := reason == registry.ReasonUnreachable || errors.Is(why, ErrLost)
	if gone && !errors.Is(why, context.Canceled) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	w.client.abandon(ctx, ref)
}
