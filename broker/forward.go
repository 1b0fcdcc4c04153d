package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// maxErrorBody bounds what is read of a backend's answer that is not passed on.
const maxErrorBody = 64 << 10

// exchange is one call on its way to one backend and back.
type exchange struct {
	b       *Broker
	w       *response
	r       *http.Request
	session *session.Session
	server  *registry.Server
	client  *upstream.Client
	backend *session.Backend
	body    []byte // as the backend gets it
	id      []byte // the raw JSON-RPC id; nil when it is not known
	tool    string // the tool's own name, where the call is one to a tool
	cut     bool   // the answer has begun and cannot be ended properly

	giveUp context.CancelFunc // ends the call
	stay   func() bool        // lets the call go on when its client leaves; false: it has left
}

func (b *Broker) exchange(
	w *response, r *http.Request, s *session.Session, srv *registry.Server, body, id []byte,
) *exchange {
	return &exchange{b: b, w: w, r: r, session: s, server: srv, body: body, id: id}
}

// recover serves a direct call that Envoy retries here because the backend
// session is dead, the backend refused the credential, or there was no
// connection. The body is as the backend was to get it.
func (b *Broker) recover(w *response, r *http.Request, rec router.Recovery) {
	method, outcome := mcp.MethodOther, string(mcp.ReasonInternal)
	defer func() { b.Metrics.Request(method, wayRecovered, outcome, 0) }()
	msg := router.Request{SessionID: rec.Token, Principal: rec.Principal, UserAgent: r.UserAgent()}
	refused, free, err := b.read(w, r, &msg)
	defer free()
	switch {
	case err != nil:
		outcome = b.unreadable(w, r)
		return
	case refused != nil:
		outcome = refused.Outcome()
		writeJSON(w, refused.Status, refused.Body...)
		return
	}
	body := msg.Body
	if jsonrpc.Scan(body, &msg.Message) == nil {
		method = mcp.MethodLabel(msg.Message.Method.Value)
	}
	s, err := b.Sessions.Find(rec.Token, rec.Principal)
	if err != nil { // ended between the two ways
		e := router.ErrSession(err)
		outcome = string(e.Reason)
		b.refuse(w, r, e, msg.ID())
		return
	}
	srv, ok := b.Registry.Snapshot().Server(rec.Server)
	if !ok { // removed between the two ways
		e := router.ErrUnavailable(rec.Server)
		outcome = string(e.Reason)
		b.refuse(w, r, e, msg.ID())
		return
	}
	x := b.exchange(w, r, s, srv, body, msg.ID())
	if method == mcp.MethodToolsCall {
		x.tool = msg.Message.Name.Value
	}
	outcome = x.carry(wayRecovered)
	x.hangUp()
}

// carry carries the call out, records what came of it and returns its outcome.
func (x *exchange) carry(way string) string {
	start := time.Now()
	outcome := x.run()
	x.b.Calls.Record(&calls.Ended{
		Server: x.server.Config.Name, Tool: x.tool, ID: string(x.id), Way: way, Outcome: calls.Outcome(outcome),
		Status: x.w.status, Start: start, Duration: time.Since(start),
		RequestBytes: uint64(len(x.body)), ResponseBytes: uint64(x.w.written), //nolint:gosec // a count
	})
	return outcome
}

// run carries the call out and returns its outcome.
func (x *exchange) run() string {
	defer x.session.Hold()()
	ctx, giveUp := context.WithCancel(context.WithoutCancel(x.r.Context()))
	defer giveUp()
	x.giveUp, x.stay = giveUp, context.AfterFunc(x.r.Context(), giveUp)
	defer x.stay()
	if t := time.Duration(x.server.Config.Timeout); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	var ok bool
	if x.client, ok = x.b.Upstreams.ClientAt(x.server.Config.Name, x.server.Cluster); !ok {
		return x.refuse(router.ErrUnavailable(x.server.Config.Name))
	}
	resp, err := x.deliver(ctx)
	switch {
	case err != nil && x.r.Context().Err() != nil:
		return clientGone
	case err != nil:
		return x.refuse(x.failure(ctx, err))
	}
	defer func() { _ = resp.Body.Close() }()
	if e := x.judge(resp); e != nil {
		return x.refuse(e)
	}
	return x.relay(ctx, resp)
}

// hangUp ends, after run and once it was counted, an answer that broke off in
// the middle, in the one way that tells a client so.
func (x *exchange) hangUp() {
	if x.cut {
		panic(http.ErrAbortHandler)
	}
}

// deliver opens the backend session where there is none and sends the call. A
// session that turns out to be dead, or to live at an address of several that is
// dead, did not run the call: it is opened again, once, and the call is sent
// again, once.
func (x *exchange) deliver(ctx context.Context) (*http.Response, error) {
	if err := x.open(ctx, nil); err != nil {
		return nil, err
	}
	resp, err := x.post(ctx)
	switch {
	case err != nil && x.stranded(ctx, err):
		x.b.Upstreams.Suspect(x.server.Config.Name)
	case err != nil || !x.lost(resp):
		return resp, err
	default:
		drain(resp)
	}
	if err := x.open(ctx, x.backend); err != nil {
		return nil, err
	}
	return x.post(ctx)
}

func (x *exchange) open(ctx context.Context, dead *session.Backend) error {
	var err error
	x.backend, err = x.session.OpenBackend(ctx, x.server.Config.Name, x.server.Cluster, dead,
		func(ctx context.Context) (*session.Backend, error) {
			rev, ok := mcp.RevisionByOrdinal(x.session.Claims().Revision)
			if !ok {
				rev = mcp.LatestSession()
			}
			caps := mcp.Capabilities(x.session.Claims().Capabilities)
			o, err := x.client.Open(ctx, upstream.OpenParams{Revision: rev.String(), Capabilities: caps.JSON()})
			if err != nil {
				return nil, fmt.Errorf("open a session: %w", err)
			}
			inheritLevel(ctx, x.client, o, x.session.Level())
			return &session.Backend{ID: o.ID, Revision: o.Revision, Epoch: x.server.Cluster, Address: o.Address}, nil
		})
	if err != nil {
		return fmt.Errorf("backend session: %w", err)
	}
	x.b.feed(x.session, x.server, x.client, x.backend)
	return nil
}

func (x *exchange) post(ctx context.Context) (*http.Response, error) {
	resp, err := x.client.Post(ctx, ref(x.backend), x.body, forwarded(x.r.Header))
	if err != nil {
		return nil, fmt.Errorf("send the call: %w", err)
	}
	return resp, nil
}

// stranded tells whether nothing of the call could be delivered because the one
// address that knows the session takes no connection, while the server has
// another.
func (x *exchange) stranded(ctx context.Context, err error) bool {
	ue, ok := errors.AsType[*upstream.Error](err)
	return ok && !ue.Delivered && ctx.Err() == nil && x.client.Elsewhere(ctx, ref(x.backend))
}

// lost tells whether the backend answered that it does not know the session. It
// can tell more than the status, by which Envoy chose to retry here: an answer
// that is one to this very call comes from a living session.
func (x *exchange) lost(resp *http.Response) bool {
	status := resp.StatusCode
	if x.backend.ID == "" || status != http.StatusNotFound && status != http.StatusBadRequest {
		return false
	}
	head := peek(resp)
	if upstream.Lost(status, head) {
		return status == http.StatusNotFound || x.server.Facts.LostStatus == status
	}
	return x.server.Facts.LostStatus == status && !x.answers(head)
}

// peek returns the begin of a body, which can still be read from its begin.
func peek(resp *http.Response) []byte {
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // the next read tells
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return head
}

// judge turns answers that no client may see into errors.
func (x *exchange) judge(resp *http.Response) *mcp.Error {
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		x.b.Upstreams.Suspect(x.server.Config.Name)
		return x.broken("refused the gateway's credential")
	case x.lost(resp):
		return x.broken("does not know the session that it has just opened")
	}
	return nil
}

// failure maps an error of the way to the backend.
func (x *exchange) failure(ctx context.Context, err error) *mcp.Error {
	if errors.Is(err, session.ErrEnded) {
		return router.ErrSession(err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		x.cancelled()
		return x.timeout()
	}
	if p, ok := errors.AsType[*session.PanicError](err); ok {
		x.b.Metrics.Panic()
		x.b.Log.Error("panic while a backend session was opened", "panic", p.Value, "stack", string(p.Stack))
		return errInternal()
	}
	x.b.Upstreams.Suspect(x.server.Config.Name)
	x.b.Log.Warn("call failed", "server", x.server.Config.Name, "error", err)
	ue, ok := errors.AsType[*upstream.Error](err)
	switch {
	case x.backend == nil || !ok || !ue.Delivered: // without a session the call was not sent
		return router.ErrUnavailable(x.server.Config.Name)
	case ue.Status != 0:
		return x.broken("answered with a redirect, which is not followed")
	}
	return x.broken("broke the connection before it answered; the call may have run")
}

func (x *exchange) timeout() *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeTimeout, Reason: mcp.ReasonTimeout, Status: http.StatusGatewayTimeout,
		Message: fmt.Sprintf("Timeout: server %q did not answer within %s",
			x.server.Config.Name, time.Duration(x.server.Config.Timeout)),
	}
}

func (x *exchange) broken(what string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInternal, Reason: mcp.ReasonBackend, Status: http.StatusBadGateway,
		Message: fmt.Sprintf("server %q %s", x.server.Config.Name, what),
	}
}

// cancelled tells the backend that nobody waits for the call any more.
func (x *exchange) cancelled() {
	if x.backend == nil || x.id == nil {
		return
	}
	x.b.tell(x.client, x.server.Config.Name, ref(x.backend), cancellation(x.id, "timeout"))
}

func (x *exchange) refuse(e *mcp.Error) string {
	x.b.refuse(x.w, x.r, e, x.id)
	return string(e.Reason)
}

func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // to reuse the connection; no matter if not
	_ = resp.Body.Close()
}

// hopByHop are the headers that end here (RFC 9110, section 7.6.1) and those
// that the next hop gets anew.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Content-Length", "Accept", "Accept-Encoding", "Content-Type",
	"Forwarded", mcp.HeaderProtocolVersion, mcp.HeaderName,
}

// gatewayPrefixes are those of headers that Envoy or ext_proc put on a request
// for the gateway's own use, or that a client made up in their names.
var gatewayPrefixes = []string{private.HeaderPrefix, "x-envoy-", "x-forwarded-"}

// forwarded returns the client's headers that a backend may see.
func forwarded(in http.Header) http.Header {
	out := in.Clone()
	for _, v := range in.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	for _, name := range mcp.PrivateHeaders {
		out.Del(name)
	}
	removeGateway(out)
	return out
}

func removeGateway(h http.Header) {
	for name := range h {
		lower := strings.ToLower(name)
		if slices.ContainsFunc(gatewayPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }) {
			delete(h, name)
		}
	}
}
