package broker

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/sse"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/router"
)

const (
	// askPrefix begins the ids under which backends' requests reach clients.
	askPrefix = "pb-"
	// askTimeout is the default of Options.AskTimeout.
	askTimeout = 10 * time.Minute
	// asksPerSession bounds how many requests of backends wait for one client.
	asksPerSession = 64
	// answerTimeout bounds the delivery of an answer to a backend.
	answerTimeout = 10 * time.Second
)

// asks are the backends' requests that wait for a client's answer.
type asks struct {
	mu   sync.Mutex
	last uint64                // guarded by mu: the last key given
	all  map[uint64]*ask       // guarded by mu
	per  map[session.ID]int    // guarded by mu: how many of a session
	seal func(b []byte) string // not changed
}

// ask is one request of a backend. It is immutable but for the timer.
type ask struct {
	key     uint64
	session session.ID
	server  string
	client  *upstream.Client
	to      upstream.Ref
	id      []byte // the backend's own id, raw
	timer   *time.Timer
	// owner is the call or stream on which it was asked: when that is over, so
	// is the question.
	owner any
}

// add takes a request in and returns the id, quoted, for the client; expire is
// called when no answer came in time. It returns "" when too many wait.
func (a *asks) add(q *ask, within time.Duration, expire func(*ask)) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.per[q.session] >= asksPerSession {
		return ""
	}
	if a.all == nil {
		a.all, a.per = map[uint64]*ask{}, map[session.ID]int{}
	}
	a.last++
	q.key = a.last
	a.all[q.key] = q
	a.per[q.session]++
	q.timer = time.AfterFunc(within, func() {
		if _, ok := a.take(q.key, q.session); ok {
			expire(q)
		}
	})
	plain := binary.BigEndian.AppendUint64(q.session[:], q.key)
	return `"` + askPrefix + a.seal(plain) + `"`
}

// take removes an ask; it reports false when it does not wait (any more), or is
// another session's.
func (a *asks) take(key uint64, id session.ID) (*ask, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, ok := a.all[key]
	if !ok || q.session != id {
		return nil, false
	}
	a.removeLocked(q)
	return q, true
}

func (a *asks) removeLocked(q *ask) {
	q.timer.Stop()
	delete(a.all, q.key)
	if a.per[q.session]--; a.per[q.session] == 0 {
		delete(a.per, q.session)
	}
}

// drop removes and returns what was asked on owner, or, where owner is nil, of
// the session.
func (a *asks) drop(owner any, id session.ID) []*ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*ask
	for _, q := range a.all {
		if owner != nil && q.owner == owner || owner == nil && q.session == id {
			a.removeLocked(q)
			out = append(out, q)
		}
	}
	return out
}

// dropServer removes what a server asked.
func (a *asks) dropServer(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.all {
		if q.server == server {
			a.removeLocked(q)
		}
	}
}

// find returns the ask of a server's own raw id, without removing it.
func (a *asks) find(id session.ID, server string, raw []byte) (*ask, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.all {
		if q.session == id && q.server == server && sameID(q.id, raw) {
			return q, true
		}
	}
	return nil, false
}

func (a *asks) wireID(q *ask) string {
	return `"` + askPrefix + a.seal(binary.BigEndian.AppendUint64(q.session[:], q.key)) + `"`
}

// source is where a backend's messages come from.
type source struct {
	b       *Broker
	session *session.Session
	server  string
	client  *upstream.Client
	to      upstream.Ref
	owner   any
}

// message looks at one message of a backend on its way to the client and returns
// what the client gets: the same bytes, but with an id of ours in a request; nil
// when it is not for the client.
func (s *source) message(data []byte) []byte {
	var m jsonrpc.Message
	if jsonrpc.Scan(data, &m) != nil {
		// The client may make more of it than we do; but one that can be asked
		// must not be asked past the checks below.
		if mcp.Capabilities(s.session.Claims().Capabilities).Asks() {
			return nil
		}
		return data
	}
	switch {
	case m.Kind == jsonrpc.Request:
		return s.request(&m)
	case m.Kind == jsonrpc.Notification && m.Method.Value == mcp.NotificationMessage:
		if !wanted(s.session.Level(), m.Params.Of(data)) {
			return nil
		}
	case m.Kind == jsonrpc.Notification && m.Method.Value == mcp.NotificationCancelled && m.RequestID.Present():
		if q, ok := s.b.asks.find(s.session.Claims().ID, s.server, m.RequestID.Of(data)); ok {
			return replace(data, m.RequestID, s.b.asks.wireID(q))
		}
	}
	return data
}

// event is message for an event of a stream: the same bytes where the message is
// the same.
func (s *source) event(e *sse.Event) []byte {
	if len(e.Data) == 0 {
		return e.Raw
	}
	out := s.message(e.Data)
	switch {
	case out == nil:
		return nil
	case &out[0] == &e.Data[0]:
		return e.Raw
	}
	var head []byte
	if e.Name != "" {
		head = append(append(append(head, "event: "...), e.Name...), '\n')
	}
	if e.HasID {
		head = append(append(append(head, "id: "...), e.ID...), '\n')
	}
	return append(appendData(head, out), '\n')
}

// request takes in a backend's request. Its id is only the backend's: another
// backend may use the same, and so may the client for its own requests.
func (s *source) request(m *jsonrpc.Message) []byte {
	id := m.ID.Of(m.Raw)
	method := m.Method.Value
	caps := mcp.Capabilities(s.session.Claims().Capabilities)
	switch {
	case method == mcp.MethodPing:
		s.answer(mcp.Result(id, []byte("{}")))
		return nil
	case !caps.Allows(method, m.Params.Of(m.Raw)):
		s.answer((&mcp.Error{Code: mcp.CodeMethodNotFound, Message: "the client does not support " + clipMethod(method)}).Body(id))
		return nil
	}
	q := &ask{
		session: s.session.Claims().ID, server: s.server, client: s.client, to: s.to,
		id: append([]byte(nil), id...), owner: s.owner,
	}
	wire := s.b.asks.add(q, s.b.AskTimeout, func(q *ask) { s.b.giveUp(q, "the client did not answer in time") })
	if wire == "" {
		s.answer((&mcp.Error{Code: mcp.CodeInternal, Message: "too many requests wait for the client"}).Body(id))
		return nil
	}
	return replace(m.Raw, m.ID, wire)
}

// answer answers a backend's request from here, without holding up its stream.
func (s *source) answer(body []byte) { s.b.tell(s.client, s.server, s.to, body) }

// giveUp answers a backend's request that will have no other answer.
func (b *Broker) giveUp(q *ask, why string) {
	e := &mcp.Error{Code: mcp.CodeTimeout, Message: why}
	b.tell(q.client, q.server, q.to, e.Body(q.id))
}

// abandon gives up what was asked on owner: its client is gone.
func (b *Broker) abandon(owner any) {
	for _, q := range b.asks.drop(owner, session.ID{}) {
		b.giveUp(q, "the client is gone")
	}
}

// respond takes in a client's response to a backend's request and returns the
// outcome. Nobody else's request can be answered: the id says whose it is, and is
// sealed.
func (b *Broker) respond(w *response, r *http.Request, s *session.Session, req *router.Request) string {
	q, ok := b.asked(s, req.ID())
	if !ok && b.passAnswer(s, req) {
		w.WriteHeader(http.StatusAccepted)
		return "ok"
	}
	if !ok {
		e := &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonInvalidRequest, Status: http.StatusBadRequest,
			Message: "no request with this id waits for an answer",
		}
		b.refuse(w, r, e, nil)
		return string(e.Reason)
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	resp, err := q.client.Post(ctx, q.to, replace(req.Body, req.Message.ID, string(q.id)), nil)
	if err != nil {
		b.Upstreams.Suspect(q.server)
		e := router.ErrUnavailable(q.server)
		b.refuse(w, r, e, nil)
		return string(e.Reason)
	}
	_ = resp.Body.Close() // nothing to read: 202
	w.WriteHeader(http.StatusAccepted)
	return "ok"
}

// passAnswer passes on what a client answers to a request that reached it on a
// direct stream, with the backend's own id. Only a client that declared nothing
// has such streams, so it is a refusal, or the answer to a ping: a refusal goes
// to each of its backend sessions, anything else only where there is one.
func (b *Broker) passAnswer(s *session.Session, req *router.Request) bool {
	if mcp.Capabilities(s.Claims().Capabilities).Asks() {
		return false
	}
	backends := s.Backends()
	if len(backends) == 0 || len(backends) > 1 && !req.Message.Error.Present() {
		return false
	}
	for server, be := range backends {
		if client, ok := b.Upstreams.ClientAt(server, be.Epoch); ok {
			b.tell(client, server, ref(be), req.Body)
		}
	}
	return true
}

// asked finds the ask that a client's response answers, and removes it.
func (b *Broker) asked(s *session.Session, raw []byte) (*ask, bool) {
	var id string
	if json.Unmarshal(raw, &id) != nil {
		return nil, false
	}
	token, ours := strings.CutPrefix(id, askPrefix)
	if !ours {
		return nil, false
	}
	plain, err := b.Seals.AppendOpen(nil, session.PurposeRequest, token)
	if err != nil || len(plain) != len(session.ID{})+8 {
		return nil, false
	}
	owner := session.ID(plain[:16])
	if owner != s.Claims().ID {
		return nil, false
	}
	return b.asks.take(binary.BigEndian.Uint64(plain[16:]), owner)
}

// replace returns raw with the bytes at the span replaced, as they are.
func replace(raw []byte, at jsonrpc.Span, with string) []byte {
	out := make([]byte, 0, len(raw)+len(with))
	out = append(out, raw[:at.Start]...)
	out = append(out, with...)
	return append(out, raw[at.End:]...)
}

func clipMethod(m string) string { return fmt.Sprintf("%.64s", m) }
