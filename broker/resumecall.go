package broker

import (
	"fmt"
	"net/http"
	"time"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
)

// attach lets a GET take up a session's stream behind an event; the GET, or the
// POST, that had it gets nothing more. It returns nil where nothing is known of
// the event.
func (c *callStreams) attach(id session.ID, at callEvent) (*callStream, *callReader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[id]
	if of == nil {
		return nil, nil
	}
	s := of.all[at.key]
	if s == nil || at.n > s.last {
		return nil, nil
	}
	s.wakeLocked()
	s.attachedLocked()
	s.reader = &callReader{n: at.n, wake: make(chan struct{}, 1)}
	return s, s.reader
}

// leave is the end of a GET.
func (s *callStream) leave(rd *callReader) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.reader == rd {
		s.reader = nil
		s.detachLocked()
	}
}

// part is what a reader of a call's stream gets next.
type part struct {
	events  [][]byte
	dropped int  // events before them that are not kept any more
	over    bool // nothing follows
	lost    bool // and the answer is not among what the client has
}

// next returns what has come since the last time.
func (s *callStream) next(rd *callReader) part {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.reader != rd {
		return part{over: true}
	}
	missed := s.last - rd.n
	kept := min(missed, len(s.log))
	rd.n = s.last
	return part{
		events:  append([][]byte(nil), s.log[len(s.log)-kept:]...),
		dropped: missed - kept,
		over:    s.over || s.answered,
		// The answer is the newest event.
		lost: s.answered && missed > 0 && kept == 0 || s.over && !s.answered,
	}
}

// resumeCall serves the GET that takes up a call's stream: what was missed on
// that stream and no other, then the rest as it comes, until the answer
// (2025-11-25, Transports, "Resumability and Redelivery"). Where the answer is
// not there any more, the call is answered with an error: a clear end.
func (b *Broker) resumeCall(w *response, r *http.Request, s *session.Session, at callEvent) {
	st, rd := b.streams.attach(s.Claims().ID, at)
	if st == nil {
		b.lostCall(w, r, at)
		return
	}
	defer st.leave(rd)
	done := s.Done()
	startEvents(w)
	if w.push([]byte(": resumed\n\n")) != nil {
		return
	}
	tick := time.NewTicker(b.KeepAlive)
	defer tick.Stop()
	for {
		p := st.next(rd)
		if !p.write(w, at) || p.over {
			return
		}
		select {
		case <-rd.wake:
		case <-tick.C:
			if w.push([]byte(": keep-alive\n\n")) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-b.ctx.Done():
			return
		case <-done:
			return
		}
	}
}

// write reports false when the client is gone.
func (p *part) write(w *response, at callEvent) bool {
	if p.dropped > 0 && w.push(fmt.Appendf(nil, ": %d events are not kept any more\n\n", p.dropped)) != nil {
		return false
	}
	for _, event := range p.events {
		if w.push(event) != nil {
			return false
		}
	}
	return !p.lost || at.call == nil || w.push(errorEvent(errLostCall(), at.call)) == nil
}

func errLostCall() *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInternal, Reason: mcp.ReasonInvalidRequest, Status: http.StatusBadRequest,
		Message: "the answer to this call is not kept any more; the call may have run",
	}
}

// lostCall answers a GET for a stream of which nothing is known: as the answer
// to the call, where the event id says to which.
func (b *Broker) lostCall(w *response, r *http.Request, at callEvent) {
	if at.call == nil {
		b.refuse(w, r, errLostCall(), nil)
		return
	}
	startEvents(w)
	_ = w.push(errorEvent(errLostCall(), at.call)) // the client is gone when this fails
}
