package broker

import (
	"bytes"
	"context"
	"io"
	"net/http"
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

// post serves one POSTed message.
func (b *Broker) post(w http.ResponseWriter, r *http.Request) {
	req := router.Request{
		SessionID:     r.Header.Get(mcp.HeaderSessionID),
		Version:       r.Header.Get(mcp.HeaderProtocolVersion),
		UserAgent:     r.UserAgent(),
		VirtualServer: r.Header.Get(mcp.HeaderVirtualServer),
	}
	var err error
	if req.Body, err = b.read(w, r); err != nil {
		return // the client is gone
	}
	start := time.Now()
	d := b.Router.Decide(&req)
	took := time.Since(start)
	switch {
	case d.Way == router.Reply:
		b.Metrics.Request(d.Method, wayReply, d.Outcome(), took)
		writeJSON(w, d.Status, d.Body)
	case d.Call.Server != nil:
		body := d.Call.AppendBody(nil, req.Body)
		x := b.exchange(w, r, d.Session, d.Call.Server, body, req.ID())
		b.Metrics.Request(d.Method, wayBroker, x.run(), took)
	case req.Message.Kind == jsonrpc.Request: // all others were decided
		b.Metrics.Request(d.Method, wayBroker, b.initialize(w, r, &req), took)
	default:
		b.notify(&d, &req)
		b.Metrics.Request(d.Method, wayBroker, "ok", took)
		w.WriteHeader(http.StatusAccepted)
	}
}

// read reads the body, one byte over the limit at most: the router judges it.
func (b *Broker) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var buf bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= b.BodyLimit {
		buf.Grow(int(n) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(r.Body, b.BodyLimit+1))
	if int64(buf.Len()) > b.BodyLimit {
		// The rest of the body is not worth reading; the connection is not
		// worth keeping.
		w.Header().Set("Connection", "close")
	}
	return buf.Bytes(), err //nolint:wrapcheck // only whether it failed matters
}

// notifyTimeout bounds the delivery of a client's notification to one backend.
const notifyTimeout = 5 * time.Second

// notify delivers a client's notification to the backends that it concerns. The
// client's ids are the backends' too, so a cancellation goes as it came to every
// backend session of the client; the others ignore an id that they do not know
// (Cancellation, "Behavior Requirements").
func (b *Broker) notify(d *router.Decision, req *router.Request) {
	if d.Method != mcp.NotificationCancelled {
		return // initialized, progress, roots: for the gateway itself
	}
	for server, backend := range d.Session.Backends() {
		client, ok := b.Upstreams.Client(server)
		if !ok {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(b.ctx, notifyTimeout)
			defer cancel()
			resp, err := client.Post(ctx, ref(backend), req.Body, nil)
			if err != nil {
				b.Log.Debug("notification not delivered", "server", server, "error", err)
				return
			}
			_ = resp.Body.Close() // nothing to read: 202
		}()
	}
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
	return upstream.Ref{ID: be.ID, Revision: be.Revision}
}
