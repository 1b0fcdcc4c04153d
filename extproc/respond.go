package extproc

import (
	"fmt"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

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
	return x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(d.Status)}, //nolint:gosec // an HTTP status
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{set("content-type", "application/json")}},
			Body:    d.Body,
		},
	}})
}

// pass lets the request go on unchanged, to the broker.
func (x *exchange) pass() error {
	return x.forward(&extprocv3.CommonResponse{}, nil, x.req.Body)
}

// direct sends the request to the backend's cluster.
func (x *exchange) direct(d *router.Decision) error {
	call := &d.Call
	common := &extprocv3.CommonResponse{
		HeaderMutation:  &extprocv3.HeaderMutation{SetHeaders: x.directHeaders(call), RemoveHeaders: removed},
		ClearRouteCache: true,
	}
	token := x.server.Seal(router.Recovery{Token: d.Session.Token(), Server: call.Server.Config.Name, Principal: x.req.Principal}.Append(nil))
	fields := map[string]*structpb.Value{
		private.KeyID:      structpb.NewStringValue(string(x.req.ID())),
		private.KeyServer:  structpb.NewStringValue(call.Server.Config.Name),
		private.KeyRecover: structpb.NewStringValue(token),
	}
	if call.Backend.Address != "" {
		fields[private.KeyAddress] = structpb.NewStringValue(call.Backend.Address)
	}
	if d.Method == mcp.MethodToolsCall {
		fields[private.KeyTool] = structpb.NewStringValue(call.Name)
	}
	meta := &structpb.Struct{Fields: map[string]*structpb.Value{
		private.Namespace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
	return x.forward(common, meta, call.TakeBody(x.req.Body)) // nobody looks at the message any more
}

func (x *exchange) directHeaders(call *router.Call) []*corev3.HeaderValueOption {
	srv, b := call.Server, call.Backend
	h := make([]*corev3.HeaderValueOption, 0, 10+len(srv.Config.Headers))
	h = append(h,
		set(private.HeaderCluster, srv.Cluster),
		set(":path", srv.Path),
		set(":authority", srv.Authority),
		set("accept", accept),
		set(mcp.HeaderProtocolVersion, b.Revision))
	if b.ID != "" {
		h = append(h, set(mcp.HeaderSessionID, b.ID))
	}
	if lost := srv.Facts.LostStatus; lost != 404 {
		h = append(h, set(private.HeaderLost, strconv.Itoa(lost)))
	}
	if x.named { // some clients send it in the session era too: it must agree
		h = append(h, set(mcp.HeaderName, mcp.EncodeHeaderValue(call.Name)))
	}
	if t := time.Duration(srv.Config.Timeout); t > 0 {
		h = append(h, set(envoyTimeout, strconv.FormatInt(max(1, t.Milliseconds()), 10)))
	}
	for name, v := range srv.Config.Headers {
		h = append(h, set(name, v))
	}
	return h
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// forward answers the headers, then sends the body, then answers the trailers.
func (x *exchange) forward(common *extprocv3.CommonResponse, meta *structpb.Struct, body []byte) error {
	err := x.send(&extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}},
		DynamicMetadata: meta,
	})
	for err == nil && len(body) > maxChunk {
		err = x.sendChunk(body[:maxChunk], false)
		body = body[maxChunk:]
	}
	if err == nil {
		err = x.sendChunk(body, !x.trailers)
	}
	if err == nil && x.trailers {
		err = x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{},
		}})
	}
	return err
}

func (x *exchange) sendChunk(chunk []byte, end bool) error {
	return x.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
			BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
				StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end},
			}},
		}},
	}})
}

func (x *exchange) send(m *extprocv3.ProcessingResponse) error {
	x.answered = true
	if err := x.stream.Send(m); err != nil {
		return fmt.Errorf("to envoy: %w", err)
	}
	return nil
}
