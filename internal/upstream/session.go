package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/registry"
)

const (
	// streamGrace is how long the first reading of the lists waits for the GET
	// stream. Some servers send no headers before the first event.
	streamGrace = 500 * time.Millisecond
	// fetchGap is the shortest time between the starts of two fetches: a
	// server that tells changes without end is not asked without end.
	fetchGap = 100 * time.Millisecond
	// maxFetchFailures is how many fetches in a row may fail at a server that
	// answers pings.
	maxFetchFailures = 3
	// maxAnyList bounds one reading of all lists with all their pages.
	maxAnyList = 2 * time.Minute
)

// session is one session of a watcher, from initialize to its loss. One
// goroutine, the watcher's, owns it; that of the GET stream uses only the fields
// that say so.
type session struct {
	w       *watcher
	ref     Ref
	has     lists // what the server has
	silent  lists // of that, what it does not tell changes of
	catalog *registry.Catalog
	facts   registry.Facts

	streams chan streamEvent // from the stream's goroutine
	wake    chan struct{}    // a token when stale was set
	reading sync.WaitGroup   // the stream's goroutine

	mu    sync.Mutex
	stale lists // guarded by mu: what must be fetched

	failures     int       // fetches that failed in a row
	lastFetch    time.Time // start of the last one
	fetchTimer   *time.Timer
	streamTimer  *time.Timer
	streamPause  backoff
	streamOpened time.Time
	streaming    bool // the GET stream is open now
}

// streamEvent tells what became of the GET stream.
type streamEvent struct {
	up  bool  // it is open now
	err error // it has ended; nil when properly
}

// session opens a session, reports the server ready, and follows it until it is
// lost; it returns why.
func (w *watcher) session(ctx context.Context) (err error) {
	w.at = ""
	opened, err := w.client.Open(ctx, OpenParams{Capabilities: mcp.CapAll.JSON()})
	if err != nil {
		return err
	}
	w.at = opened.Address
	defer func() { w.endSession(opened.Ref, err) }()
	if err := w.probe(ctx, opened.Ref); err != nil {
		return err
	}
	s := &session{
		w: w, ref: opened.Ref,
		catalog: &registry.Catalog{
			ServerInfo: opened.ServerInfo, Capabilities: opened.Capabilities, Instructions: opened.Instructions,
		},
		facts:       registry.Facts{Revision: opened.Revision, Sessions: opened.ID != "", LostStatus: w.lostStatus},
		streams:     make(chan streamEvent),
		wake:        make(chan struct{}, 1),
		fetchTimer:  stoppedTimer(),
		streamTimer: stoppedTimer(),
		streamPause: backoff{min: w.opt.BackoffMin, max: w.opt.BackoffMax},
	}
	s.has, s.silent = declared(opened.Capabilities)
	ctx, cancel := context.WithCancel(ctx)
	defer s.w.forgetSession()
	defer s.reading.Wait()
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return err
	}
	return s.follow(ctx)
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// probe learns once per connection to a server what it does with unknown
// sessions: it may be another program after it was away.
func (w *watcher) probe(ctx context.Context, ref Ref) error {
	if w.probed && w.ready {
		return nil
	}
	status, err := w.client.Probe(ctx, ref)
	if err != nil {
		return err
	}
	w.probed, w.lostStatus = true, status
	return nil
}

// begin opens the GET stream, so that no change is missed, and then reads all
// lists.
func (s *session) begin(ctx context.Context) error {
	s.openStream(ctx)
	grace := time.NewTimer(streamGrace)
	defer grace.Stop()
	select {
	case ev := <-s.streams:
		if err := s.onStream(ctx, ev); err != nil {
			return err
		}
	case <-grace.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.takeStale()
	if err := s.fetch(ctx, s.has); err != nil {
		return err
	}
	s.w.reportReady(s.catalog, s.facts)
	s.w.backoff.reset()
	s.reading.Go(func() { s.w.subscribeAll(ctx, s.ref) })
	return nil
}

// follow reacts to what happens until the session is lost.
func (s *session) follow(ctx context.Context) error {
	ping := time.NewTicker(s.w.opt.PingEvery)
	defer ping.Stop()
	poll := time.NewTicker(orDuration(s.w.poll, defaultPoll))
	defer poll.Stop()
	defer s.fetchTimer.Stop()
	defer s.streamTimer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-s.streams:
			err = s.onStream(ctx, ev)
		case <-s.streamTimer.C:
			s.openStream(ctx)
		case <-s.wake:
			s.fetchTimer.Reset(max(0, fetchGap-time.Since(s.lastFetch)))
		case <-s.fetchTimer.C:
			err = s.refetch(ctx)
		case <-ping.C:
			err = s.alive(ctx)
		case <-s.w.suspected:
			err = s.alive(ctx)
		case <-poll.C:
			s.markStale(s.toPoll())
		}
		if err != nil {
			return err
		}
	}
}

// defaultPoll is for configurations that were not read by package config.
const defaultPoll = 30 * time.Second

func orDuration(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// toPoll returns the lists whose changes the server cannot tell now.
func (s *session) toPoll() lists {
	if s.streaming {
		return s.silent
	}
	return s.has
}

func (s *session) markStale(l lists) {
	if l == 0 {
		return
	}
	s.mu.Lock()
	s.stale |= l
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

func (s *session) takeStale() lists {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.stale & s.has
	s.stale = 0
	return l
}

// fetch reads the lists in which into the session's catalog.
func (s *session) fetch(ctx context.Context, which lists) error {
	s.lastFetch = time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxAnyList)
	defer cancel()
	fresh, err := s.w.client.fetch(ctx, s.ref, s.catalog, which)
	if err != nil {
		return err
	}
	s.catalog = fresh
	return nil
}

// refetch reads what is stale and reports it. A change that is told meanwhile
// sets stale again and leads to one more fetch.
func (s *session) refetch(ctx context.Context) error {
	which := s.takeStale()
	if which == 0 {
		return nil
	}
	err := s.fetch(ctx, which)
	if err == nil {
		s.failures = 0
		s.w.reportReady(s.catalog, s.facts)
		return nil
	}
	if reason, _ := reasonOf(err); reason != registry.ReasonUnreachable || errors.Is(err, ErrLost) {
		return err
	}
	if s.failures++; s.failures >= maxFetchFailures {
		return err
	}
	if dead := s.alive(ctx); dead != nil {
		return dead
	}
	s.w.log.Warn("cannot read the lists of the server, will try again", "error", err)
	s.markStale(which)
	return nil
}

// openStream starts the goroutine that opens and reads the GET stream. There is
// one at a time.
func (s *session) openStream(ctx context.Context) {
	s.reading.Go(func() {
		body, err := s.w.client.openStream(ctx, s.ref, "")
		if err != nil {
			s.tell(ctx, streamEvent{err: err})
			return
		}
		defer func() { _ = body.Close() }()
		s.tell(ctx, streamEvent{up: true})
		err = s.w.client.readEvents(body, func(ev Event) error { return s.onEvent(ctx, ev) })
		s.tell(ctx, streamEvent{err: err})
	})
}

func (s *session) tell(ctx context.Context, ev streamEvent) {
	select {
	case s.streams <- ev:
	case <-ctx.Done():
	}
}

// onEvent handles one event of the GET stream, in the stream's goroutine.
func (s *session) onEvent(ctx context.Context, ev Event) error {
	if ev.Data == "" {
		return nil
	}
	raw := []byte(ev.Data)
	var m jsonrpc.Message
	if err := jsonrpc.Scan(raw, &m); err != nil {
		s.w.log.Debug("the server's stream holds something that is not a JSON-RPC message", "error", err)
		return nil
	}
	switch m.Kind {
	case jsonrpc.Notification:
		s.markStale(changedBy(m.Method.Value))
		if m.Method.Value == mcp.NotificationUpdated && s.w.opt.Updated != nil && m.URI.Present() {
			s.w.opt.Updated(s.w.name, m.URI.Value, raw)
		}
	case jsonrpc.Request:
		ctx, cancel := context.WithTimeout(ctx, s.w.opt.PingTimeout)
		defer cancel()
		return s.w.client.reply(ctx, s.ref, &m)
	case jsonrpc.Response: // to nothing that we asked here
	}
	return nil
}

// onStream reacts to what became of the GET stream. Its end alone is no loss:
// proxies end streams after their time limit. So the server is asked, and the
// stream opened again; then the lists are read again, since a change may have
// been missed.
func (s *session) onStream(ctx context.Context, ev streamEvent) error {
	if ev.up {
		s.streaming, s.streamOpened = true, time.Now()
		if !s.facts.Stream {
			s.facts.Stream = true
			if s.w.ready {
				s.w.reportReady(s.catalog, s.facts)
			}
		}
		s.markStale(s.has)
		return nil
	}
	s.streaming = false
	switch {
	case errors.Is(ev.err, ErrNoStream):
		s.facts.Stream = false
		return nil
	case errors.Is(ev.err, ErrLost):
		return ev.err
	}
	if err := s.alive(ctx); err != nil {
		return err
	}
	pause := time.Duration(0)
	if time.Since(s.streamOpened) < shortSession {
		pause = s.streamPause.pause()
	} else {
		s.streamPause.reset()
	}
	s.streamTimer.Reset(pause)
	return nil
}

// alive pings the server, twice if need be, and returns why it is not there. A
// refused connection needs no second try.
func (s *session) alive(ctx context.Context) error {
	err := s.ping(ctx)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	e, ok := errors.AsType[*Error](err)
	if ok && (errors.Is(e, ErrLost) || (!e.Delivered && !isTimeout(e)) || e.Status == http.StatusUnauthorized) {
		return err
	}
	return s.ping(ctx)
}

func (s *session) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.w.opt.PingTimeout)
	defer cancel()
	_, err := s.w.client.Call(ctx, s.ref, "ping", nil)
	if _, answered := errors.AsType[*RPCError](err); answered {
		return nil // a server that does not know ping is there all the same
	}
	return err
}
