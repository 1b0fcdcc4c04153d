package broker

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
)

const (
	// streamQueue is how many messages may wait for one stream.
	streamQueue = 64
	// queueBytes is how much may wait for one stream.
	queueBytes = 1 << 20
	// streamsPerSession bounds the GET streams of one session; the oldest goes.
	streamsPerSession = 4
	// writeTimeout is the default of Options.WriteTimeout.
	writeTimeout = 10 * time.Second
)

// hub knows the open GET streams.
type hub struct {
	dropped func()
	empty   func(session.ID) // called when a session's last stream is gone; must not block

	mu       sync.Mutex
	sessions map[session.ID][]*listener // guarded by mu; each oldest first
	n        int                        // guarded by mu

	kept      map[session.ID][]*eventLog // guarded by mu: of ended streams; each oldest first
	keptCount int                        // guarded by mu
	swept     time.Time                  // guarded by mu: when ended streams were last thrown away
}

// listener is one GET stream.
type listener struct {
	queue queue         // whole SSE events; only holders of the hub's mu add to it
	gone  chan struct{} // closed by the hub: the stream is to end
	log   eventLog      // guarded by the hub's mu
}

func (l *listener) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func newHub(dropped func(), empty func(session.ID)) *hub {
	return &hub{dropped: dropped, empty: empty, sessions: map[session.ID][]*listener{}, kept: map[session.ID][]*eventLog{}}
}

func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *hub) add(id session.ID) *listener {
	l := &listener{queue: newQueue(), gone: make(chan struct{}), log: newEventLog()}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append(h.sessions[id], l)
	h.n++
	if len(all) > streamsPerSession {
		close(all[0].gone)
		h.keepLocked(id, &all[0].log)
		all = all[1:]
		h.n--
	}
	h.sessions[id] = all
	return l
}

func (h *hub) remove(id session.ID, l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(id, l)
}

func (h *hub) removeLocked(id session.ID, l *listener) {
	all := h.sessions[id]
	for i := range all {
		if all[i] != l {
			continue
		}
		h.n--
		h.keepLocked(id, &l.log)
		if len(all) == 1 {
			delete(h.sessions, id)
			h.empty(id)
			return
		}
		h.sessions[id] = append(append([]*listener(nil), all[:i]...), all[i+1:]...)
		return
	}
}

// changed tells every session what list changed. It never blocks.
func (h *hub) changed(ev registry.Event) {
	events := listChanged(ev.Changes)
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.sessions {
		for _, e := range events {
			h.sendLocked(id, e)
		}
	}
}

// sendLocked queues an event for exactly one stream of a session (Transports,
// "Listening for Messages from the Server"): the newest whose client reads. One
// whose queue is full is dropped. It reports whether there was one.
func (h *hub) sendLocked(id session.ID, e []byte) bool {
	for all := h.sessions[id]; len(all) > 0; all = h.sessions[id] {
		l := all[len(all)-1]
		if l.queue.room() {
			l.queue.put(l.log.stamp(e))
			return true
		}
		h.removeLocked(id, l)
		close(l.gone)
		h.dropped()
	}
	return false
}

// has tells whether the session has a stream.
func (h *hub) has(id session.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions[id]) > 0
}

// send queues an event for the session, and reports whether it has a stream.
func (h *hub) send(id session.ID, e []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sendLocked(id, e)
}

var (
	toolsChanged     = event(mcp.NotificationTools)
	promptsChanged   = event(mcp.NotificationPrompts)
	resourcesChanged = event(mcp.NotificationResources)
)

func event(method string) []byte {
	return []byte("event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"" + method + "\"}\n\n")
}

// listChanged returns the notifications for the changes. Templates have none of
// their own: they go with the resources.
func listChanged(changes []registry.Change) [][]byte {
	var out [][]byte
	resources := false
	for _, c := range changes {
		switch c.Kind {
		case registry.Tools:
			out = append(out, toolsChanged)
		case registry.Prompts:
			out = append(out, promptsChanged)
		case registry.Resources, registry.Templates:
			if !resources {
				out = append(out, resourcesChanged)
			}
			resources = true
		}
	}
	return out
}

// stream serves GET: the stream on which a session hears of changes.
func (b *Broker) stream(w *response, r *http.Request) {
	s, e := b.find(r)
	if e == nil && !mcp.AcceptsEvents(joined(r.Header, "Accept")) {
		e = &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonInvalidRequest, Status: http.StatusNotAcceptable,
			Message: "GET opens an event stream: send Accept: text/event-stream",
		}
	}
	if e != nil {
		b.refuse(w, r, e, nil)
		return
	}
	defer s.Hold()()
	last := r.Header.Get(mcp.HeaderLastEventID)
	if at, ok := parseCallEvent(last); ok {
		b.resumeCall(w, r, s, at)
		return
	}
	if last != "" && !strings.HasPrefix(last, eventPrefix) {
		b.resumeAtBackend(w, r, s, last)
		return
	}
	missed := b.missed(s.Claims().ID, last)
	l := b.hub.add(s.Claims().ID)
	defer b.hub.remove(s.Claims().ID, l)
	startEvents(w)
	if w.push([]byte(": connected\n\n")) != nil {
		return
	}
	for _, event := range missed {
		if w.push(event) != nil {
			return
		}
	}
	b.feedAll(s)
	// After add: an answer that breaks off from now on is told by the queue.
	for _, event := range b.rescues.take(s.Claims().ID, time.Now()) {
		if w.push(event) != nil {
			return
		}
	}
	b.serveStream(w, r, s, l)
}

func startEvents(w *response) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// serveStream writes until somebody ends the stream.
func (b *Broker) serveStream(w *response, r *http.Request, s *session.Session, l *listener) {
	tick := time.NewTicker(b.KeepAlive)
	defer tick.Stop()
	for {
		msg := []byte(": keep-alive\n\n")
		select {
		case <-r.Context().Done():
			return
		case <-b.ctx.Done():
			return
		case <-s.Done():
			return
		case <-l.gone:
			return
		case <-l.queue.ready:
			msg = l.queue.take()
		case <-tick.C:
		}
		if w.push(msg) != nil {
			if w.slow && !l.isGone() { // else the hub has counted it
				b.Metrics.StreamDropped()
			}
			return
		}
	}
}
