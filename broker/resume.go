package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
)

const (
	// eventPrefix begins the event ids of the gateway's own streams.
	eventPrefix = "pb-"
	// logEvents and logBytes bound what is kept of one stream for a replay.
	logEvents, logBytes = 64, 16 << 10
	// keptPerSession is how many ended streams of a session can be taken up
	// again, keepTime how long, and maxKept how many in all.
	keptPerSession, maxKept = 4, 5_000
	keepTime                = 5 * time.Minute
)

// eventLog is what a stream carried lately; the hub's lock guards it.
type eventLog struct {
	key   string
	last  int      // the number of the newest event
	log   [][]byte // the newest events, as they were sent; nil before the first
	bytes int
	until time.Time // of an ended stream
}

func newEventLog() eventLog {
	var key [8]byte
	_, _ = rand.Read(key[:]) // never fails
	return eventLog{key: hex.EncodeToString(key[:])}
}

// stamp gives an event its id and keeps it.
func (l *eventLog) stamp(event []byte) []byte {
	l.last++
	out := make([]byte, 0, len(event)+40)
	out = append(append(out, "id: "+eventPrefix+l.key+"-"...), strconv.Itoa(l.last)...)
	out = append(append(out, '\n'), event...)
	l.log = append(l.log, out)
	l.bytes += len(out)
	for len(l.log) > logEvents || l.bytes > logBytes && len(l.log) > 1 {
		l.bytes -= len(l.log[0])
		l.log[0] = nil
		l.log = l.log[1:]
	}
	return out
}

// after returns the events behind number n, and false when some are gone.
func (l *eventLog) after(n int) ([][]byte, bool) {
	missed := l.last - n
	if n < 0 || missed < 0 || missed > len(l.log) {
		return l.log, false
	}
	return l.log[len(l.log)-missed:], true
}

// keepLocked keeps the log of a stream that ended.
func (h *hub) keepLocked(id session.ID, l *eventLog) {
	if l.last == 0 {
		return // nothing can be asked for
	}
	now := time.Now()
	if h.keptCount >= maxKept || now.After(h.swept.Add(keepTime)) {
		h.sweepLocked(now)
	}
	all := h.kept[id]
	if len(all) >= keptPerSession {
		all = all[1:]
		h.keptCount--
	}
	if h.keptCount >= maxKept {
		return
	}
	l.until = now.Add(keepTime)
	h.kept[id] = append(append([]*eventLog(nil), all...), l)
	h.keptCount++
}

func (h *hub) sweepLocked(now time.Time) {
	h.swept = now
	for id, all := range h.kept {
		if now.After(all[len(all)-1].until) { // the newest is over, so all are
			h.keptCount -= len(all)
			delete(h.kept, id)
		}
	}
}

// replay returns what a session's stream carried behind the event, and false
// when that is not known (any more) as a whole.
func (h *hub) replay(id session.ID, lastEventID string) ([][]byte, bool) {
	key, number, ok := strings.Cut(strings.TrimPrefix(lastEventID, eventPrefix), "-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.sessions[id] {
		if l.log.key == key {
			return l.log.after(n)
		}
	}
	for _, l := range h.kept[id] {
		if l.key == key {
			return l.after(n)
		}
	}
	return nil, false
}

// forget drops what is kept of a session.
func (h *hub) forget(id session.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keptCount -= len(h.kept[id])
	delete(h.kept, id)
}

// missed returns what a client must hear that takes up its stream again. What
// cannot be replayed is told apart from nothing missed: the client is told to
// read every list anew.
func (b *Broker) missed(id session.ID, lastEventID string) [][]byte {
	if lastEventID == "" {
		return nil
	}
	events, whole := b.hub.replay(id, lastEventID)
	if !whole {
		events = append(append([][]byte(nil), events...), toolsChanged, promptsChanged, resourcesChanged)
	}
	return events
}

// resumeAtBackend takes an event id that is not ours to the backend that gave
// it. Only where one alone can have given it: else the answer is a clear end.
func (b *Broker) resumeAtBackend(w *response, r *http.Request, s *session.Session, lastEventID string) {
	src, ok := b.onlySource(s)
	if !ok {
		b.refuse(w, r, &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonInvalidRequest, Status: http.StatusBadRequest,
			Message: "the stream of this Last-Event-ID cannot be resumed: send the request again",
		}, nil)
		return
	}
	defer b.abandon(src.owner)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	go func() { // ends with ctx
		select {
		case <-s.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	startEvents(w)
	if w.push([]byte(": resumed\n\n")) != nil {
		return
	}
	last := ""
	err := src.client.Stream(ctx, src.to, lastEventID, func(e upstream.Event) error {
		out := src.resumed(&e, last)
		last = e.ID
		if out == nil {
			return nil
		}
		return w.push(out)
	})
	if err != nil {
		b.Log.Debug("a stream could not be resumed", "server", src.server, "error", err)
	}
}

// onlySource finds the one backend of a session that gives event ids.
func (b *Broker) onlySource(s *session.Session) (*source, bool) {
	var found *source
	servers := b.Registry.Snapshot()
	for server, be := range s.Backends() {
		srv, ok := servers.Server(server)
		if !ok || !srv.Facts.Stream || srv.Cluster != be.Epoch {
			continue
		}
		client, ok := b.Upstreams.ClientAt(server, be.Epoch)
		if !ok || found != nil {
			return nil, false
		}
		found = &source{b: b, session: s, server: server, client: client, to: ref(be), owner: new(int)}
	}
	return found, found != nil
}

// resumed renders an event of a resumed stream, with its id where it is new.
func (s *source) resumed(e *upstream.Event, last string) []byte {
	var out []byte
	if e.ID != last {
		out = append(append(append(out, "id: "...), e.ID...), '\n')
	}
	if e.Type != "" {
		out = append(append(append(out, "event: "...), e.Type...), '\n')
	}
	data := []byte(e.Data)
	if len(data) > 0 {
		var m jsonrpc.Message
		if jsonrpc.Scan(data, &m) == nil && m.Kind == jsonrpc.Notification && forWatcher(m.Method.Value) {
			return nil
		}
		if data = s.message(data); data == nil {
			return nil
		}
	}
	out = appendData(out, bytes.TrimRight(data, "\n"))
	return append(out, '\n')
}
