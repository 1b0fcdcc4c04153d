package broker

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/sse"
)

const (
	// maxEvent bounds one event of a backend's stream.
	maxEvent = 16 << 20
	// maxHeldJSON is how much of a JSON answer is held back until it is whole,
	// so that an answer that breaks off becomes an error and not half a text.
	maxHeldJSON = 1 << 20
)

// relay passes the backend's answer on as it is and returns the outcome.
func (x *exchange) relay(ctx context.Context, resp *http.Response) string {
	typ, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && typ == "text/event-stream" && resp.StatusCode == http.StatusOK {
		return x.relayEvents(ctx, resp)
	}
	return x.relayWhole(ctx, resp)
}

// relayWhole passes on a JSON answer, or an error page.
func (x *exchange) relayWhole(ctx context.Context, resp *http.Response) string {
	held, err := io.ReadAll(io.LimitReader(resp.Body, maxHeldJSON))
	if err != nil {
		return x.refuse(x.cutOff(ctx))
	}
	copyHeader(x.w.Header(), resp.Header)
	x.w.WriteHeader(mcp.ClientStatus(x.r.UserAgent(), resp.StatusCode))
	if _, err := x.w.Write(held); err != nil {
		return "client_gone"
	}
	if len(held) < maxHeldJSON {
		return "ok"
	}
	if _, err := io.Copy(x.w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // the one way to tell a client that a body is not whole
	}
	return "ok"
}

// relayEvents passes on an event stream, event by event, and tells in the stream
// when it ends without the answer.
func (x *exchange) relayEvents(ctx context.Context, resp *http.Response) string {
	copyHeader(x.w.Header(), resp.Header)
	x.w.Header().Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	out := newEventWriter(x.w)
	if out.rc.Flush() != nil {
		return "client_gone"
	}
	events := sse.NewReader(resp.Body, maxEvent)
	answered := false
	for {
		e, err := events.Next()
		if err != nil {
			if answered {
				return "ok"
			}
			return x.endStream(ctx, out, err)
		}
		answered = answered || x.answers(e.Data)
		if out.write(e.Raw) != nil {
			return "client_gone"
		}
	}
}

// answers tells whether an event's data is the response to the call.
func (x *exchange) answers(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	var m jsonrpc.Message
	return jsonrpc.Scan(data, &m) == nil && m.Kind == jsonrpc.Response
}

// endStream ends a stream that broke off with the error, as its last event.
func (x *exchange) endStream(ctx context.Context, out *eventWriter, cause error) string {
	if x.r.Context().Err() != nil {
		return "client_gone"
	}
	e := x.cutOff(ctx)
	if errors.Is(cause, sse.ErrTooLarge) {
		e = x.broken("sent an event over the size limit")
	}
	if x.id != nil {
		msg := append([]byte("event: message\ndata: "), e.Body(x.id)...)
		if out.write(append(msg, "\n\n"...)) != nil {
			return "client_gone"
		}
	}
	return string(e.Reason)
}

// cutOff is the error for an answer that broke off.
func (x *exchange) cutOff(ctx context.Context) *mcp.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		x.cancelled()
		return x.timeout()
	}
	x.b.Upstreams.Suspect(x.server.Config.Name)
	return x.broken("broke off its answer; the call may have run")
}

// copyHeader copies a backend's response headers that a client may see.
func copyHeader(dst, src http.Header) {
	for name, v := range src {
		dst[name] = v
	}
	for _, name := range hopByHop {
		if name != "Content-Type" {
			dst.Del(name)
		}
	}
	for _, name := range mcp.PrivateResponseHeaders {
		dst.Del(name)
	}
}
