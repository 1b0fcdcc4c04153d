package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
)

const (
	// maxEvent bounds one event of a backend's stream.
	maxEvent = 16 << 20
	// maxHeldJSON is how much of a JSON answer is held back until it is whole,
	// so that an answer that breaks off becomes an error and not half a text.
	maxHeldJSON = 1 << 20
	// maxCopied is how much of a larger one is read and written at once.
	maxCopied = 32 << 10
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
	switch {
	case err != nil && x.r.Context().Err() != nil:
		return clientGone
	case err != nil:
		return x.refuse(x.cutOff(ctx))
	}
	status, e := x.status(resp.StatusCode, held)
	if e != nil {
		return x.refuse(e)
	}
	copyHeader(x.w.Header(), resp.Header)
	x.w.WriteHeader(status)
	if _, err := x.w.Write(held); err != nil {
		return clientGone
	}
	if len(held) < maxHeldJSON {
		return "ok"
	}
	return x.relayRest(ctx, resp.Body)
}

// status returns the status under which the client gets a backend's answer. An
// answer that the client could not understand as one becomes an error.
func (x *exchange) status(status int, body []byte) (int, *mcp.Error) {
	mapped := mcp.ClientStatus(x.r.UserAgent(), status)
	switch {
	case status == http.StatusNotFound:
		// This status would tell the client that its session with the gateway
		// is gone (Transports, "Session Management").
		mapped = http.StatusOK
	case status < http.StatusMultipleChoices && len(bytes.TrimSpace(body)) == 0:
		return 0, x.broken("accepted the call and did not answer it")
	}
	if mapped != status && !x.answers(body) {
		return 0, x.broken(fmt.Sprintf("answered with HTTP %d", status))
	}
	return mapped, nil
}

// relayRest passes on what follows the first part of a large answer.
func (x *exchange) relayRest(ctx context.Context, body io.Reader) string {
	buf := make([]byte, maxCopied)
	for {
		n, err := body.Read(buf)
		if n > 0 && x.w.push(buf[:n]) != nil {
			return clientGone
		}
		switch {
		case errors.Is(err, io.EOF):
			return "ok"
		case err != nil && x.r.Context().Err() != nil:
			return clientGone
		case err != nil:
			x.cut = true
			return string(x.cutOff(ctx).Reason)
		}
	}
}

func isResponse(data []byte) bool {
	var m jsonrpc.Message
	return len(data) > 0 && jsonrpc.Scan(data, &m) == nil && m.Kind == jsonrpc.Response
}

// answers tells whether data is the response to the call; any response, where
// the call's id is not known.
func (x *exchange) answers(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	var m jsonrpc.Message
	return jsonrpc.Scan(data, &m) == nil && m.Kind == jsonrpc.Response &&
		(x.id == nil || sameID(x.id, m.ID.Of(data)))
}

// sameID compares raw ids: backends may escape a string in another way.
func sameID(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var s, t string
	return json.Unmarshal(a, &s) == nil && json.Unmarshal(b, &t) == nil && s == t
}

// errorEvent is the error as an event that answers the request with the raw id.
func errorEvent(e *mcp.Error, id []byte) []byte {
	msg := append([]byte("event: message\ndata: "), e.Body(id)...)
	return append(msg, "\n\n"...)
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
	src = src.Clone()
	for _, name := range hopByHop {
		if name != "Content-Type" {
			src.Del(name)
		}
	}
	for _, list := range [][]string{mcp.PrivateResponseHeaders, mcp.OriginResponseHeaders} {
		for _, name := range list {
			src.Del(name)
		}
	}
	removeGateway(src)
	for name, v := range src {
		dst[name] = v
	}
}
