package broker

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"patchbay.dev/internal/session"
)

const (
	// callPrefix begins the event ids of calls' streams. They are
	// callPrefix KEY "-" N "-" ID: the stream, the event's number in it, and the
	// call's raw JSON-RPC id in base64url, by which a client can be told that
	// its call is lost also when nothing is known of the stream any more.
	callPrefix = eventPrefix + "call-"
	// maxCallID is the longest raw id, in bytes, that goes into event ids.
	maxCallID = 64
	// callEvents and callBytes bound what is kept of one call's stream. The
	// newest event is kept whatever its size.
	callEvents, callBytes = 256, 1 << 20
	// maxCallBytes bounds what is kept of all of them. Streams that have ended
	// go first, the oldest first.
	maxCallBytes = 64 << 20
	// callsKept is how many ended streams of a session can be taken up again,
	// and callKeepTime how long.
	callsKept, callKeepTime = 4, time.Minute
	// callsDetached is how many calls of one session go on without their
	// client, the oldest is given up first; and maxDetached how many in all. In
	// HTTP/2 each of them still counts as a stream of Envoy's connection.
	callsDetached, maxDetached = 16, 512
	// detachTime is the default of Options.DetachTime.
	detachTime = 5 * time.Minute
	// callCost is what a stream takes beside its events, in bytes.
	callCost = 512
)

// callStreams knows the event streams of the calls that are carried here.
type callStreams struct {
	detachTime time.Duration

	mu       sync.Mutex
	sessions map[session.ID]*sessionCalls // guarded by mu
	ended    list.List                    // guarded by mu: of *callStream, the oldest first
	bytes    int                          // guarded by mu: of what is kept of all
	detached int                          // guarded by mu
	closed   bool                         // guarded by mu
}

// sessionCalls are the streams of one session.
type sessionCalls struct {
	all      map[string]*callStream // by key
	detached []*callStream          // oldest first
	ended    []*callStream          // oldest first
}

// callStream is the event stream of one call: what it carried lately, and who
// reads it. Everything but the first fields is guarded by callStreams.mu.
type callStream struct {
	all     *callStreams
	session *session.Session
	key     string
	id      []byte             // the call's raw JSON-RPC id, or nil
	suffix  string             // the end of the event ids
	cancel  context.CancelFunc // gives the call up

	last      int      // the number of the newest event
	log       [][]byte // the newest events, as they are sent
	bytes     int
	answered  bool // the newest event is the answer
	over      bool // nothing comes any more
	cancelled bool // by the client's own word
	gone      bool // nothing is kept (any more)
	detached  bool // the POST's client is gone
	reader    *callReader
	timer     *time.Timer   // of a detached call that nobody reads
	at        *list.Element // in ended
	until     time.Time     // of an ended stream
}

// callReader is a GET that has taken up a call's stream.
type callReader struct {
	n    int           // the number of the last event that the client has
	wake chan struct{} // of 1: there is news
}

func newCallStreams(detach time.Duration) *callStreams {
	return &callStreams{detachTime: detach, sessions: map[session.ID]*sessionCalls{}}
}

// open takes in the stream of a call; the caller ends it.
func (c *callStreams) open(s *session.Session, id []byte, cancel context.CancelFunc) *callStream {
	var key [8]byte
	_, _ = rand.Read(key[:]) // never fails
	st := &callStream{all: c, session: s, id: id, key: hex.EncodeToString(key[:]), cancel: cancel, suffix: "-"}
	if len(id) <= maxCallID {
		st.suffix += base64.RawURLEncoding.EncodeToString(id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += callCost
	c.ofLocked(s.Claims().ID).all[st.key] = st
	return st
}

func (c *callStreams) ofLocked(id session.ID) *sessionCalls {
	of := c.sessions[id]
	if of == nil {
		of = &sessionCalls{all: map[string]*callStream{}}
		c.sessions[id] = of
	}
	return of
}

// appendID appends the id field of the event with the number n.
func (s *callStream) appendID(out []byte, n int) []byte {
	out = append(append(append(out, "id: "+callPrefix...), s.key...), '-')
	return append(append(strconv.AppendInt(out, int64(n), 10), s.suffix...), '\n')
}

// priming is the event that lets a client come back before there was another
// (2025-11-25, Transports, "Sending Messages to the Server").
func (s *callStream) priming() []byte { return append(s.appendID(nil, 0), "data:\n\n"...) }

// stamp gives an event its id and keeps it. It reports whether the client of the
// POST is to get it.
func (s *callStream) stamp(event []byte, answer bool) (out []byte, live bool) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.last++
	out = append(s.appendID(make([]byte, 0, len(event)+len(s.suffix)+48), s.last), event...)
	if s.gone {
		return out, s.liveLocked()
	}
	s.log = append(s.log, out)
	s.bytes += len(out)
	s.all.bytes += len(out)
	s.answered = answer
	for len(s.log) > callEvents || s.bytes > callBytes && len(s.log) > 1 {
		s.dropLocked()
	}
	s.all.boundLocked()
	for s.all.bytes > maxCallBytes && len(s.log) > 0 {
		s.dropLocked()
	}
	s.wakeLocked()
	return out, s.liveLocked()
}

// dropLocked drops the oldest event.
func (s *callStream) dropLocked() {
	s.bytes -= len(s.log[0])
	s.all.bytes -= len(s.log[0])
	s.log[0] = nil
	s.log = s.log[1:]
}

// boundLocked drops what has ended and is too old, or too much.
func (c *callStreams) boundLocked() {
	now := time.Now()
	for e := c.ended.Front(); e != nil; e = c.ended.Front() {
		st := e.Value.(*callStream) //nolint:forcetypeassert // nothing else is in it
		if c.bytes <= maxCallBytes && now.Before(st.until) {
			return
		}
		c.removeLocked(st)
	}
}

// removeLocked forgets a stream.
func (c *callStreams) removeLocked(s *callStream) {
	if s.gone {
		return
	}
	s.gone = true
	c.bytes -= s.bytes + callCost
	s.log, s.bytes = nil, 0
	if s.at != nil {
		c.ended.Remove(s.at)
		s.at = nil
	}
	id := s.session.Claims().ID
	of := c.sessions[id]
	delete(of.all, s.key)
	of.ended = without(of.ended, s)
	if len(of.all) == 0 {
		delete(c.sessions, id)
	}
}

func without(all []*callStream, s *callStream) []*callStream {
	for i := range all {
		if all[i] == s {
			return append(append([]*callStream(nil), all[:i]...), all[i+1:]...)
		}
	}
	return all
}

// liveLocked tells whether the client of the POST still reads.
func (s *callStream) liveLocked() bool { return !s.detached && s.reader == nil }

func (s *callStream) live() bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.liveLocked()
}

func (s *callStream) wakeLocked() {
	if s.reader == nil {
		return
	}
	select {
	case s.reader.wake <- struct{}{}:
	default: // it has not looked at the last news yet
	}
}

// end says that nothing comes any more. What there is can be asked for a while,
// unless the call was given up.
func (s *callStream) end(givenUp bool) {
	c := s.all
	c.mu.Lock()
	defer c.mu.Unlock()
	s.over = true
	s.wakeLocked()
	s.attachedLocked()
	if givenUp || s.gone {
		c.removeLocked(s)
		return
	}
	of := c.sessions[s.session.Claims().ID]
	s.until = time.Now().Add(callKeepTime)
	s.at = c.ended.PushBack(s)
	if of.ended = append(of.ended, s); len(of.ended) > callsKept {
		c.removeLocked(of.ended[0])
	}
	c.boundLocked()
}

// detach says that the POST's client is gone. The call goes on if the bounds
// allow it.
func (s *callStream) detach() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if !s.detached {
		s.detachLocked()
	}
}

func (s *callStream) detachLocked() {
	c := s.all
	s.detached = true
	if s.over || s.reader != nil {
		return
	}
	if c.closed || s.cancelled || s.gone || c.detached >= maxDetached {
		s.cancel()
		return
	}
	of := c.sessions[s.session.Claims().ID]
	if len(of.detached) >= callsDetached {
		oldest := of.detached[0]
		oldest.attachedLocked()
		oldest.cancel()
	}
	of.detached = append(of.detached, s)
	c.detached++
	s.timer = time.AfterFunc(c.detachTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.timer != nil { // else somebody reads it, or it is over
			s.cancel()
		}
	})
}

// attachedLocked takes the stream from those of detached calls.
func (s *callStream) attachedLocked() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if of := s.all.sessions[s.session.Claims().ID]; of != nil {
		if rest := without(of.detached, s); len(rest) < len(of.detached) {
			of.detached = rest
			s.all.detached--
		}
	}
}

// wasCancelled tells whether the client has cancelled the call.
func (s *callStream) wasCancelled() bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.cancelled
}

// cancel takes in that a client has cancelled the call with the raw id. One that
// goes on without its client is given up.
func (c *callStreams) cancel(id session.ID, call []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[id]
	if of == nil {
		return
	}
	for _, s := range of.all {
		if s.over || s.id == nil || !sameID(s.id, call) {
			continue
		}
		s.cancelled = true
		if s.detached && s.reader == nil {
			s.cancel()
		}
	}
}

// forget drops what is kept of a session that has ended, and gives up its calls
// that go on without their client.
func (c *callStreams) forget(id session.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[id]
	if of == nil {
		return
	}
	of.giveUpLocked()
	for _, s := range of.all {
		s.attachedLocked() // while its session is known here
		c.removeLocked(s)
	}
}

// close gives up all calls that go on without their client, from now on.
func (c *callStreams) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, of := range c.sessions {
		of.giveUpLocked()
	}
}

// giveUpLocked gives up the calls that go on without their client.
func (of *sessionCalls) giveUpLocked() {
	for _, s := range of.all {
		if !s.over && !s.liveLocked() {
			s.cancel()
		}
	}
}

// callEvent is an event id of a call's stream.
type callEvent struct {
	key  string
	n    int
	call []byte // the call's raw JSON-RPC id, nil where it is not known
}

// parseCallEvent reports false for any other event id.
func parseCallEvent(id string) (callEvent, bool) {
	rest, ours := strings.CutPrefix(id, callPrefix)
	parts := strings.SplitN(rest, "-", 3)
	if !ours || len(parts) != 3 {
		return callEvent{}, false
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 0 {
		return callEvent{}, false
	}
	e := callEvent{key: parts[0], n: n}
	// The client could have written it: it is to be an id, not any JSON.
	raw, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err == nil && len(raw) > 0 && len(raw) <= maxCallID && strings.IndexByte(`"-0123456789`, raw[0]) >= 0 && json.Valid(raw) {
		e.call = raw
	}
	return e, true
}
