package reload

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"patchbay.dev/internal/config"
)

const (
	// quiet is how long nothing must have happened before the file is read:
	// editors write in several steps.
	quiet = 100 * time.Millisecond
	// patience bounds how long a file that never is quiet is left alone.
	patience = time.Second
	// lookEvery is how often the file is read without being told.
	lookEvery = 30 * time.Second
)

// Options are what a Reloader works with; all are needed.
type Options struct {
	// Path is the configuration file.
	Path string
	// Started is the configuration that the process started with.
	Started *config.Config
	// Load reads the file as at the start.
	Load func() (*config.Config, []config.Warning, error)
	// Apply puts into force what of a configuration can be without a restart.
	// Applying the same one again does no harm. The error says what of it is
	// not in force.
	Apply func(*config.Config) error
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Reloader applies the configuration again whenever its file changes.
type Reloader struct {
	opt     Options
	metrics *metrics
	again   chan struct{} // holds a token when somebody called Trigger

	// ---- owned by Run
	files  watched
	seen   fingerprint // of the last load
	failed string      // the error of the last load, "" when it was good
	looked bool
}

// New returns a Reloader and registers its metrics.
func New(o Options) *Reloader {
	return &Reloader{opt: o, metrics: newMetrics(o.Registerer), again: make(chan struct{}, 1)}
}

// Trigger makes Run load the file now, changed or not. It does not block.
func (r *Reloader) Trigger() {
	select {
	case r.again <- struct{}{}:
	default: // it will load anyway
	}
}

// Run watches until ctx is done, and returns nil then.
func (r *Reloader) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.opt.Log.Warn("changes of the configuration are noticed late, by looking", "every", lookEvery, "error", err)
		w = &fsnotify.Watcher{} // its channels are nil: nothing is told
	} else {
		defer w.Close() //nolint:errcheck // it held no data
		r.files.on = w
	}
	r.files.follow(names(r.opt.Path, r.opt.Started))
	r.look(false)
	r.loop(ctx, w)
	return nil
}

func (r *Reloader) loop(ctx context.Context, w *fsnotify.Watcher) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var settle settling
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-w.Events:
			if r.files.concerns(ev) {
				settle.event(time.Now())
			}
		case err := <-w.Errors: // events may be lost
			r.opt.Log.Warn("watching the configuration", "error", err)
			settle.event(time.Now())
		case <-settle.c:
			settle = settling{}
			r.look(false)
		case <-tick.C:
			r.look(r.failed != "") // what it lacked may be there now
		case <-r.again:
			r.look(true)
		}
	}
}

// settling waits until events have ceased. The zero value waits for the first.
type settling struct {
	first time.Time
	c     <-chan time.Time
}

func (s *settling) event(now time.Time) {
	if s.c == nil {
		s.first = now
	}
	s.c = time.After(min(quiet, max(0, patience-now.Sub(s.first))))
}

// look loads and applies the file if it, or a CA file, changed since the last
// load; or in any case.
func (r *Reloader) look(anyway bool) {
	r.files.refresh()
	now := r.files.fingerprint()
	first := !r.looked
	if r.looked && now == r.seen && !anyway {
		return
	}
	r.seen, r.looked = now, true
	cfg, warnings, err := r.load()
	if err != nil {
		r.refuse("configuration not reloaded, the last good one stays", err)
		return
	}
	if r.files.follow(names(r.opt.Path, cfg)) {
		r.seen = r.files.fingerprint()
	}
	if first && reflect.DeepEqual(cfg, r.opt.Started) {
		return // nothing happened since the start
	}
	for _, w := range warnings {
		r.opt.Log.Warn("configuration", "warning", w.String())
	}
	for _, key := range restartKeys(r.opt.Started, cfg) {
		r.opt.Log.Warn("a changed key of the configuration needs a restart; the others are in force", "key", key)
	}
	if err := r.opt.Apply(cfg); err != nil {
		r.refuse("configuration reloaded only in part", err)
		return
	}
	r.failed = ""
	r.metrics.succeeded(time.Now())
	r.opt.Log.Info("configuration reloaded", "servers", len(cfg.Servers))
}

// load reads the file. One that is empty now, other than at the start, is one
// that somebody is just writing: it must not remove every server.
func (r *Reloader) load() (*config.Config, []config.Warning, error) {
	if content, err := read(r.opt.Path); err == nil && len(bytes.TrimSpace(content)) == 0 {
		return nil, nil, fmt.Errorf("%s: the file is empty", r.opt.Path)
	}
	return r.opt.Load()
}

// refuse says, once, what is wrong, with a line of the log for each mistake.
func (r *Reloader) refuse(what string, err error) {
	text := err.Error()
	if r.failed == text {
		return
	}
	r.failed = text
	r.metrics.refused()
	for line := range strings.Lines(text) {
		r.opt.Log.Error(what, "error", strings.TrimSuffix(line, "\n"))
	}
}

// restartKeys returns the keys in which two configurations differ and that only
// a restart puts into force: listeners are open, keys and limits are handed out.
// That is every key but the servers and what selects among them.
func restartKeys(was, now *config.Config) []string {
	var out []string
	a, b := reflect.ValueOf(*was), reflect.ValueOf(*now)
	for i := range a.NumField() {
		key, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "servers" || key == "virtualServers" {
			continue
		}
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			out = append(out, key)
		}
	}
	return out
}
