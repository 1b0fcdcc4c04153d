package extproc

import (
	"errors"
	"io"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/router"
)

// read takes in the request: its headers, its whole body, its trailers. A
// verdict ends it early.
func (x *exchange) read() (*router.Decision, error) {
	in := incoming{header: x.header}
	for first := true; ; first = false {
		if err := x.stream.RecvMsg(&in); err != nil {
			return nil, aborted(err)
		}
		switch in.kind {
		case requestHeaders:
			if x.length > x.server.BodyLimit { // said beforehand
				d := x.server.Router.TooLarge(x.req.UserAgent)
				return &d, nil
			}
		case requestBody:
			if verdict := x.body(in.body); verdict != nil {
				return verdict, nil
			}
		case requestTrailers:
			x.trailers, in.end = true, true
		default:
			return nil, status.Errorf(codes.InvalidArgument, "unexpected message, field %d: check processing_mode", in.kind)
		}
		if first && in.kind != requestHeaders {
			return nil, status.Error(codes.InvalidArgument, "the first message is not request_headers: check processing_mode")
		}
		if in.end {
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

// header takes in one header of the request.
func (x *exchange) header(key, value []byte) {
	switch string(key) {
	case mcp.HeaderSessionID:
		x.req.SessionID = string(value)
	case mcp.HeaderProtocolVersion:
		x.req.Version = string(value)
	case mcp.HeaderVirtualServer:
		x.req.VirtualServer = string(value)
	case mcp.HeaderName:
		x.named = true
	case "content-length":
		x.length, _ = strconv.ParseInt(string(value), 10, 64) // Envoy has checked it
	case "origin":
		join(&x.req.Origin, value)
	case "accept":
		join(&x.req.Accept, value)
	case "content-type":
		join(&x.req.ContentType, value)
	case "user-agent":
		x.req.UserAgent = string(value)
	}
}

// join adds the value of a header that may come several times: together they are
// judged, so that a second one hides nothing.
func join(all *string, v []byte) {
	if *all == "" {
		*all = string(v)
		return
	}
	*all += "," + string(v)
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
