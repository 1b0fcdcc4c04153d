package broker

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/router"
)

const (
	// rescueTime is how long an error waits for a stream on which its client can
	// hear it: SDK clients come back within seconds, or not at all.
	rescueTime = time.Minute
	// rescuesPerSession and maxRescues bound what waits.
	rescuesPerSession = 16
	maxRescues        = 4096
)

// rescues are the errors of direct calls that broke off, for clients that have
// no GET stream open.
type rescues struct {
	mu    sync.Mutex
	wait  map[session.ID][]rescue // guarded by mu; each oldest first
	count int                     // guarded by mu
}

type rescue struct {
	event   []byte
	expires time.Time
}

// keep holds an event back for the session's next stream. It reports false when
// too much waits already.
func (r *rescues) keep(id session.ID, event []byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count >= maxRescues {
		r.expireLocked(now)
	}
	if r.count >= maxRescues || len(r.wait[id]) >= rescuesPerSession {
		return false
	}
	if r.wait == nil {
		r.wait = map[session.ID][]rescue{}
	}
	r.wait[id] = append(r.wait[id], rescue{event, now.Add(rescueTime)})
	r.count++
	return true
}

// take returns what waits for the session, and forgets it.
func (r *rescues) take(id session.ID, now time.Time) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.wait[id]
	delete(r.wait, id)
	r.count -= len(all)
	var out [][]byte
	for _, one := range all {
		if now.Before(one.expires) {
			out = append(out, one.event)
		}
	}
	return out
}

func (r *rescues) expireLocked(now time.Time) {
	for id, all := range r.wait {
		if !now.Before(all[len(all)-1].expires) { // the newest is over, so all are
			delete(r.wait, id)
			r.count -= len(all)
		}
	}
}

// DirectEnded draws the conclusions from a direct call that did not end well: a
// client whose event stream broke off is told so where it can still hear it, a
// backend whose call timed out is told that nobody waits, and a backend that
// broke is looked at. It does not block.
func (b *Broker) DirectEnded(e *calls.Ended) {
	switch e.Outcome {
	case calls.Broken, calls.Timeout, calls.Unavailable:
	default:
		return
	}
	if e.Outcome != calls.Timeout {
		b.Upstreams.Suspect(e.Server)
	}
	plain, err := b.Seals.AppendOpen(nil, session.PurposeRecover, e.Recover)
	if err != nil {
		return // an Envoy that speaks for another gateway
	}
	rec, err := router.ParseRecovery(plain)
	if err != nil {
		return
	}
	s, err := b.Sessions.Find(rec.Token, rec.Principal)
	if err != nil {
		return // it has ended: nobody waits
	}
	if e.Outcome == calls.Timeout {
		b.cancelCall(s, rec.Server, []byte(e.ID))
	}
	if e.EventStream && e.Status == http.StatusOK {
		b.rescue(s, e)
	}
}

// rescue tells the client on its GET stream, or on the next one that it opens:
// clients match an answer by its id, on whatever stream it comes.
func (b *Broker) rescue(s *session.Session, e *calls.Ended) {
	msg := &mcp.Error{
		Code: mcp.CodeInternal, Reason: mcp.ReasonBackend,
		Message: fmt.Sprintf("server %q broke off its answer; the call may have run", e.Server),
	}
	if e.Outcome == calls.Timeout {
		msg = &mcp.Error{
			Code: mcp.CodeTimeout, Reason: mcp.ReasonTimeout,
			Message: fmt.Sprintf("Timeout: server %q did not finish its answer in time", e.Server),
		}
	}
	event := errorEvent(msg, []byte(e.ID))
	id := s.Claims().ID
	if b.hub.send(id, event) {
		b.Metrics.Rescue("stream")
		return
	}
	if !b.rescues.keep(id, event, time.Now()) {
		b.Metrics.Rescue("lost")
		return
	}
	b.Metrics.Rescue("kept")
	if b.hub.has(id) { // a stream that was opened meanwhile, and took what waited before
		for _, event := range b.rescues.take(id, time.Now()) {
			b.hub.send(id, event)
		}
	}
}

// cancelCall tells a backend that nobody waits for the call any more.
func (b *Broker) cancelCall(s *session.Session, server string, id []byte) {
	backend, ok := s.Backends()[server]
	if !ok || len(id) == 0 {
		return
	}
	if client, ok := b.Upstreams.ClientAt(server, backend.Epoch); ok {
		b.tell(client, server, ref(backend), cancellation(id, "timeout"))
	}
}
