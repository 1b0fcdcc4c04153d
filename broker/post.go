package broker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/router"
)

// ways of the metrics that are not the router's.
const (
	wayBroker    = "broker"
	wayReply     = "reply"
	wayRecovered = "recovered"
)

// clientGone is the outcome of a request whose client did not wait for it.
const clientGone = "client_gone"

// post serves one POSTed message.
func (b *Broker) post(w *response, r *http.Request) {
	req := router.Request{
		SessionID:     r.Header.Get(mcp.HeaderSessionID),
		Version:       r.Header.Get(mcp.HeaderProtocolVersion),
		UserAgent:     r.UserAgent(),
		VirtualServer: r.Header.Get(mcp.HeaderVirtualServer),
		Origin:        joined(r.Header, "Origin"),
		Accept:        joined(r.Header, "Accept"),
		ContentType:   joined(r.Header, "Content-Type"),
	}
	refused, free, err := b.read(w, r, &req)
	defer free()
	switch {
	case err != nil:
		b.Metrics.Request(mcp.MethodOther, wayReply, b.unreadable(w, r), 0)
		return
	case refused != nil:
		b.Metrics.Request(refused.Method, wayReply, refused.Outcome(), 0)
		writeJSON(w, refused.Status, refused.Body...)
		return
	}
	start := time.Now()
	d := b.Router.Decide(&req)
	took := time.Since(start)
	request := req.Message.Kind == jsonrpc.Request
	switch {
	case d.Way == router.Reply:
		b.Metrics.Request(d.Method, wayReply, d.Outcome(), took)
		writeJSON(w, d.Status, d.Body...)
	case d.Batch != nil: // its messages are counted, one by one
		b.batch(w, r, &d, req.Body)
	case request && d.Method == mcp.MethodSetLevel:
		b.Metrics.Request(d.Method, wayBroker, b.setLevel(w, r, &d, &req), took)
	case request && (d.Method == mcp.MethodSubscribe || d.Method == mcp.MethodUnsubscribe):
		b.Metrics.Request(d.Method, wayBroker, b.subscribe(w, r, &d, &req), took)
	case d.Call.Server != nil:
		body := d.Call.AppendBody(nil, req.Body)
		x := b.exchange(w, r, d.Session, d.Call.Server, body, req.ID())
		if d.Method == mcp.MethodToolsCall {
			x.tool = d.Call.Name
		}
		b.Metrics.Request(d.Method, wayBroker, x.carry(wayBroker), took)
		x.hangUp()
	case req.Message.Kind == jsonrpc.Response:
		b.Metrics.Request(d.Method, wayBroker, b.respond(w, r, d.Session, &req), took)
	case request: // initialize: all others were decided
		b.Metrics.Request(d.Method, wayBroker, b.initialize(w, r, &req), took)
	default:
		b.notify(&d, &req)
		b.Metrics.Request(d.Method, wayBroker, "ok", took)
		w.WriteHeader(http.StatusAccepted)
	}
}

// joined returns all values of a header, as router.Request wants them.
func joined(h http.Header, name string) string {
	if v := h.Values(name); len(v) > 1 {
		return strings.Join(v, ",")
	}
	return h.Get(name)
}

// read reads the body, one byte over the limit at most: the router judges it. A
// large one is read only for who has a session, and within BufferLimit; else the
// decision says why not. The caller calls free when the body is done with.
func (b *Broker) read(w http.ResponseWriter, r *http.Request, req *router.Request) (d *router.Decision, free func(), err error) {
	var buf bytes.Buffer
	free = func() {}
	if r.ContentLength > b.BodyLimit { // said beforehand
		over := b.Router.TooLarge(req.UserAgent)
		return &over, free, nil
	}
	if _, err = buf.ReadFrom(io.LimitReader(r.Body, router.SmallBody+1)); err == nil && buf.Len() > router.SmallBody {
		if d = b.Router.Stranger(req); d != nil {
			return d, free, nil
		}
		size := b.BodyLimit
		if n := r.ContentLength; n > 0 && n <= b.BodyLimit {
			size = n
			buf.Grow(int(n) - buf.Len() + bytes.MinRead)
		}
		free = func() { b.buffered.Add(-size) }
		if b.buffered.Add(size) > b.BufferLimit {
			over := router.Overloaded(req.UserAgent)
			return &over, free, nil
		}
		_, err = buf.ReadFrom(io.LimitReader(r.Body, b.BodyLimit+1-int64(buf.Len())))
	}
	if int64(buf.Len()) > b.BodyLimit && r.ProtoMajor == 1 {
		// The rest of the body is not worth reading; the connection is not
		// worth keeping. (In HTTP/2 it has the streams of others.)
		w.Header().Set("Connection", "close")
	}
	req.Body = buf.Bytes()
	return nil, free, err //nolint:wrapcheck // only whether it failed matters
}

// unreadable answers a request whose body did not come whole, in case its client
// is still there, and returns the outcome. The default, 200, would be a lie.
func (b *Broker) unreadable(w *response, r *http.Request) string {
	e := &mcp.Error{
		Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonInvalidRequest, Status: http.StatusBadRequest,
		Message: "the request body did not arrive whole; send it again",
	}
	b.refuse(w, r, e, nil)
	return string(e.Reason)
}

const (
	// notifyTimeout bounds the delivery of a notification to one backend.
	notifyTimeout = 5 * time.Second
	// maxTelling is how many such deliveries may be under way. Beyond that they
	// are left out: a client gets its 202 at once and could send any number.
	maxTelling = 256
	// maxTellingServer is how many of them may be to one server, so that a slow
	// one leaves room to the others.
	maxTellingServer = 64
)

// notify delivers a client's notification to the backends that it concerns. The
// client's ids are the backends' too, so a cancellation goes as it came to every
// backend session of the client; the others ignore an id that they do not know
// (Cancellation, "Behavior Requirements").
func (b *Broker) notify(d *router.Decision, req *router.Request) {
	caps := mcp.Capabilities(d.Session.Claims().Capabilities)
	switch {
	case d.Method == mcp.NotificationCancelled:
	case d.Method == mcp.NotificationProgress && caps.Asks(): // of an answer to a backend's request
	case d.Method == mcp.NotificationRoots && caps&mcp.CapRootsListChanged != 0:
	default:
		return // for the gateway itself, or not declared
	}
	for server, backend := range d.Session.Backends() {
		// False: the session lives at another address than the server now.
		if client, ok := b.Upstreams.ClientAt(server, backend.Epoch); ok {
			b.tell(client, server, ref(backend), req.Body)
		}
	}
	if m := &req.Message; d.Method == mcp.NotificationCancelled && m.RequestID.Present() {
		b.streams.cancel(d.Session.Claims().ID, m.RequestID.Of(req.Body))
	}
}

// tell delivers a notification to a backend on a goroutine of its own: nobody
// waits for it, and it ends with the Broker.
func (b *Broker) tell(client *upstream.Client, server string, to upstream.Ref, body []byte) {
	if !b.telling.begin(server) {
		b.Log.Debug("notification left out: too many are under way", "server", server)
		return
	}
	go func() {
		defer b.telling.end(server)
		ctx, cancel := context.WithTimeout(b.ctx, notifyTimeout)
		defer cancel()
		resp, err := client.Post(ctx, to, body, nil)
		if err != nil {
			b.Log.Debug("notification not delivered", "server", server, "error", err)
			return
		}
		_ = resp.Body.Close() // nothing to read: 202
	}()
}

// deliveries counts the notifications on their way to backends.
type deliveries struct {
	mu     sync.Mutex
	all    int            // guarded by mu
	server map[string]int // guarded by mu
}

// begin reports false when too many are under way.
func (d *deliveries) begin(server string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all >= maxTelling || d.server[server] >= maxTellingServer {
		return false
	}
	if d.server == nil {
		d.server = map[string]int{}
	}
	d.all++
	d.server[server]++
	return true
}

func (d *deliveries) end(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.server[server]--; d.server[server] == 0 {
		delete(d.server, server)
	}
}

// cancellation is the notification that nobody waits for a call any more, which
// has the raw id (Cancellation).
func cancellation(id []byte, reason string) []byte {
	return fmt.Appendf(nil,
		`{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s,"reason":%q}}`, mcp.NotificationCancelled, id, reason)
}

// end serves DELETE: the session ends for good, everywhere.
func (b *Broker) end(w http.ResponseWriter, r *http.Request) {
	s, e := b.find(r)
	if e == nil {
		if err := b.Sessions.End(s); err != nil {
			b.Log.Error("session could not be ended durably", "error", err)
			e = &mcp.Error{
				Code: mcp.CodeInternal, Reason: mcp.ReasonInternal, Status: http.StatusInternalServerError,
				Message: "the end of the session could not be recorded; try again",
			}
		}
	}
	if e != nil {
		b.refuse(w, r, e, nil)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// find returns the session of a GET or DELETE.
func (b *Broker) find(r *http.Request) (*session.Session, *mcp.Error) {
	if e := router.CheckVersion(r.Header.Get(mcp.HeaderProtocolVersion)); e != nil {
		return nil, e
	}
	token := r.Header.Get(mcp.HeaderSessionID)
	if token == "" {
		return nil, router.ErrNoSession()
	}
	s, err := b.Sessions.Find(token, "")
	if err != nil {
		return nil, router.ErrSession(err)
	}
	return s, nil
}

func ref(be *session.Backend) upstream.Ref {
	return upstream.Ref{ID: be.ID, Revision: be.Revision, Address: be.Address}
}
