package extproc

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/mem"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
	"patchbay.dev/router"
)

// maxChunk is the largest body chunk that Envoy takes in one message of a full
// duplex stream.
const maxChunk = 64 << 10

// accept is what a direct call accepts, whatever its client said: servers made
// with the TypeScript SDK answer 406 to anything else.
const accept = "application/json, text/event-stream"

// envoyTimeout bounds one call; Envoy's router takes it from us because clients'
// headers of that kind are removed at the listener.
const envoyTimeout = "x-envoy-upstream-rq-timeout-ms"

// removed are the client's headers that no backend sees. Envoy removes before
// it sets, so a credential of ours under the same name stays.
var removed = mcp.PrivateHeaders

// reply answers from here.
func (x *exchange) reply(d *router.Decision) error {
	return x.send(immediate(d.Status, d.Body))
}

// pass lets the request go on unchanged, to the broker.
func (x *exchange) pass() error {
	return x.forward(headersResponse(nil, nil), x.req.Body)
}

// direct sends the request to the backend's cluster.
func (x *exchange) direct(d *router.Decision) error {
	common := func(b []byte) []byte { // CommonResponse: header_mutation 2, clear_route_cache 5
		b = message(b, 2, func(b []byte) []byte { return x.mutation(b, &d.Call) })
		return number(b, 5, 1)
	}
	metadata := func(b []byte) []byte {
		return structField(b, private.Namespace, func(b []byte) []byte { // Value: struct_value 5
			return message(b, 5, func(b []byte) []byte { return x.metadata(b, d) })
		})
	}
	answer := headersResponse(common, metadata)
	return x.forward(answer, d.Call.TakeBody(x.req.Body)) // nobody looks at the message any more
}

// metadata appends what the rest of Envoy learns of a direct call.
func (x *exchange) metadata(b []byte, d *router.Decision) []byte {
	call := &d.Call
	rec := router.Recovery{Token: d.Session.Token(), Server: call.Server.Config.Name, Principal: x.req.Principal}
	b = structString(b, private.KeyID, string(x.req.ID()))
	b = structString(b, private.KeyServer, call.Server.Config.Name)
	b = structString(b, private.KeyRecover, x.server.Seal(rec.Append(nil)))
	if call.Backend.Address != "" {
		b = structString(b, private.KeyAddress, call.Backend.Address)
	}
	if d.Method == mcp.MethodToolsCall {
		b = structString(b, private.KeyTool, call.Name)
	}
	return b
}

// mutation appends the HeaderMutation of a direct call: set_headers 1,
// remove_headers 2.
func (x *exchange) mutation(b []byte, call *router.Call) []byte {
	srv, be := call.Server, call.Backend
	b = setHeader(b, private.HeaderCluster, srv.Cluster)
	b = setHeader(b, ":path", srv.Path)
	b = setHeader(b, ":authority", srv.Authority)
	b = setHeader(b, "accept", accept)
	b = setHeader(b, mcp.HeaderProtocolVersion, be.Revision)
	if be.ID != "" {
		b = setHeader(b, mcp.HeaderSessionID, be.ID)
	}
	if lost := srv.Facts.LostStatus; lost != 404 {
		b = setHeader(b, private.HeaderLost, strconv.Itoa(lost))
	}
	if x.named { // some clients send it in the session era too: it must agree
		b = setHeader(b, mcp.HeaderName, mcp.EncodeHeaderValue(call.Name))
	}
	if t := time.Duration(srv.Config.Timeout); t > 0 {
		b = setHeader(b, envoyTimeout, strconv.FormatInt(max(1, t.Milliseconds()), 10))
	}
	for name, v := range srv.Config.Headers {
		b = setHeader(b, name, v)
	}
	for _, name := range removed {
		b = text(b, 2, name)
	}
	return b
}

// headersResponse encodes the answer to the headers: request_headers 1 of a
// ProcessingResponse (response 1), and dynamic_metadata 8.
func headersResponse(common, metadata func([]byte) []byte) outgoing {
	size := 64
	if metadata != nil {
		size = 1536
	}
	b := message(make([]byte, 0, size), 1, func(b []byte) []byte {
		if common == nil {
			return b
		}
		return message(b, 1, common)
	})
	if metadata != nil {
		b = message(b, 8, metadata)
	}
	return outgoing{mem.SliceBuffer(b)}
}

// forward answers the headers, then sends the body, then answers the trailers.
func (x *exchange) forward(headers outgoing, body []byte) error {
	err := x.send(headers)
	for err == nil && len(body) > maxChunk {
		err = x.send(bodyResponse(body[:maxChunk], false))
		body = body[maxChunk:]
	}
	if err == nil {
		err = x.send(bodyResponse(body, !x.trailers))
	}
	if err == nil && x.trailers {
		err = x.send(outgoing{mem.SliceBuffer(message(nil, 5, func(b []byte) []byte { return b }))}) // request_trailers
	}
	return err
}

func (x *exchange) send(m outgoing) error {
	x.answered = true
	if err := x.stream.SendMsg(m); err != nil {
		return fmt.Errorf("to envoy: %w", err)
	}
	return nil
}
