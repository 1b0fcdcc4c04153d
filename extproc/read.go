package extproc

import (
	"errors"
	"io"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/router"
)

// read takes in the request: its headers, its whole body, its trailers. A
// verdict ends it early.
func (x *exchange) read() (*router.Decision, error) {
	for first := true; ; first = false {
		msg, err := x.stream.Recv()
		if err != nil {
			return nil, aborted(err)
		}
		end := false
		switch m := msg.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			x.headers(m.RequestHeaders.GetHeaders())
			if x.length > x.server.BodyLimit { // said beforehand
				d := x.server.Router.TooLarge(x.req.UserAgent)
				return &d, nil
			}
			end = m.RequestHeaders.GetEndOfStream()
		case *extprocv3.ProcessingRequest_RequestBody:
			if verdict := x.body(m.RequestBody.GetBody()); verdict != nil {
				return verdict, nil
			}
			end = m.RequestBody.GetEndOfStream()
		case *extprocv3.ProcessingRequest_RequestTrailers:
			x.trailers, end = true, true
		default:
			return nil, status.Errorf(codes.InvalidArgument, "unexpected message %T: check processing_mode", msg.Request)
		}
		if first && msg.GetRequestHeaders() == nil {
			return nil, status.Error(codes.InvalidArgument, "the first message is not request_headers: check processing_mode")
		}
		if end {
			return nil, nil //nolint:nilnil // no verdict and no error: go on
		}
	}
}

// aborted makes sure that a stream that ended too early never ends with OK.
func aborted(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Aborted, "the stream ended before the request did")
	}
	return err
}

func (x *exchange) headers(h *corev3.HeaderMap) {
	for _, kv := range h.GetHeaders() {
		switch kv.GetKey() {
		case mcp.HeaderSessionID:
			x.req.SessionID = value(kv)
		case mcp.HeaderProtocolVersion:
			x.req.Version = value(kv)
		case mcp.HeaderVirtualServer:
			x.req.VirtualServer = value(kv)
		case mcp.HeaderName:
			x.named = true
		case "content-length":
			x.length, _ = strconv.ParseInt(value(kv), 10, 64) // Envoy has checked it
		case "origin":
			join(&x.req.Origin, value(kv))
		case "accept":
			join(&x.req.Accept, value(kv))
		case "content-type":
			join(&x.req.ContentType, value(kv))
		case "user-agent":
			x.req.UserAgent = value(kv)
		}
	}
}

// join adds the value of a header that may come several times: together they are
// judged, so that a second one hides nothing.
func join(all *string, v string) {
	if *all != "" {
		v = *all + "," + v
	}
	*all = v
}

// value returns a header's value: Envoy sends raw_value.
func value(kv *corev3.HeaderValue) string {
	if raw := kv.GetRawValue(); raw != nil {
		return string(raw)
	}
	return kv.GetValue()
}

// body adds a chunk. The first one is kept as it came: most bodies are one.
func (x *exchange) body(chunk []byte) *router.Decision {
	size := int64(len(x.req.Body) + len(chunk))
	if size > router.SmallBody && x.counted == 0 {
		// Only who has a session may hold more than a little memory. This is
		// asked before the limit, or the answer to a stranger would depend on
		// how the body was cut into chunks.
		if d := x.server.Router.Stranger(&x.req); d != nil {
			return d
		}
	}
	if size > x.server.BodyLimit {
		d := x.server.Router.TooLarge(x.req.UserAgent)
		return &d
	}
	if size > router.SmallBody { // all together no more than the limit
		more := size - router.SmallBody - x.counted
		x.counted += more
		if x.server.buffered.Add(more) > x.server.BufferLimit {
			d := router.Overloaded(x.req.UserAgent)
			return &d
		}
	}
	if x.req.Body == nil {
		x.req.Body = chunk
	} else {
		x.req.Body = append(x.req.Body, chunk...)
	}
	return nil
}
