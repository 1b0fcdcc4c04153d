package envoy

import (
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"patchbay.dev/internal/private"
)

// verdict is what the test's ext_proc does with a request; the zero value
// lets it go on to the broker.
type verdict struct {
	cluster  string
	headers  map[string]string // set on a direct call
	noMeta   bool
	pin      string // the address that a direct call must go to
	body     []byte // replaces the body
	reply    int    // status of an immediate reply
	replyTxt string
	abort    error // ends the stream
	hangUp   bool  // ends the stream with OK
}

// decider is a real ext_proc server, in the mode that the gateway's uses.
type decider struct {
	extprocv3.UnimplementedExternalProcessorServer
	mu     sync.Mutex
	decide func(headers map[string]string, body []byte) verdict // guarded by mu
	asked  atomic.Int64
	server *grpc.Server
}

// byHeader sends a call where the client's x-test-to says.
func byHeader(h map[string]string, _ []byte) verdict {
	v := verdict{cluster: h["x-test-to"], headers: map[string]string{":path": "/backend/mcp", ":authority": "backend.test"}}
	v.pin = h["x-test-pin"]
	if lost := h["x-test-lost"]; lost != "" {
		v.headers[private.HeaderLost] = lost
	}
	if ms := h["x-test-timeout"]; ms != "" {
		v.headers["x-envoy-upstream-rq-timeout-ms"] = ms
	}
	return v
}

func startDecider(t *testing.T, l net.Listener) *decider {
	t.Helper()
	d := &decider{decide: byHeader, server: grpc.NewServer()}
	extprocv3.RegisterExternalProcessorServer(d.server, d)
	serveGRPC(t, d.server, l)
	return d
}

func serveGRPC(t *testing.T, s *grpc.Server, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
}

func (d *decider) set(f func(map[string]string, []byte) verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decide = f
}

func (d *decider) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	d.asked.Add(1)
	headers := map[string]string{}
	var body []byte
	for end := false; !end; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch r := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			for _, h := range r.RequestHeaders.GetHeaders().GetHeaders() {
				headers[h.GetKey()] = string(h.GetRawValue())
			}
			end = r.RequestHeaders.GetEndOfStream()
		case *extprocv3.ProcessingRequest_RequestBody:
			body = append(body, r.RequestBody.GetBody()...)
			end = r.RequestBody.GetEndOfStream()
		}
	}
	d.mu.Lock()
	decide := d.decide
	d.mu.Unlock()
	return d.answer(stream, decide(maps.Clone(headers), body), body)
}

func (d *decider) answer(stream extprocv3.ExternalProcessor_ProcessServer, v verdict, body []byte) error {
	switch {
	case v.abort != nil || v.hangUp:
		return v.abort
	case v.reply != 0:
		return stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
			ImmediateResponse: &extprocv3.ImmediateResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode(v.reply)}, Body: []byte(v.replyTxt),
				Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setHeader("content-type", "application/json")}},
			},
		}})
	}
	common := &extprocv3.CommonResponse{}
	var meta *structpb.Struct
	if v.cluster != "" {
		m := &extprocv3.HeaderMutation{
			SetHeaders:    []*corev3.HeaderValueOption{setHeader(private.HeaderCluster, v.cluster)},
			RemoveHeaders: []string{"authorization"},
		}
		for k, val := range v.headers {
			m.SetHeaders = append(m.SetHeaders, setHeader(k, val))
		}
		common.HeaderMutation, common.ClearRouteCache = m, true
		if !v.noMeta {
			meta = callMetadata()
			if v.pin != "" {
				meta.Fields[private.Namespace].GetStructValue().Fields[private.KeyAddress] = structpb.NewStringValue(v.pin)
			}
		}
	}
	err := stream.Send(&extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}},
		DynamicMetadata: meta,
	})
	if v.body != nil {
		body = v.body
	}
	for first := true; err == nil && (first || len(body) > 0); first = false {
		n := min(len(body), 64<<10)
		err = stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
				Mutation: &extprocv3.BodyMutation_StreamedResponse{
					StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body[:n], EndOfStream: n == len(body)},
				},
			}}},
		}})
		body = body[n:]
	}
	return err
}

// callID is a raw id with everything that could break the error's format.
const callID = `"a\"%b%REQ(:path)%{}"`

func callMetadata() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		private.Namespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			private.KeyID:      structpb.NewStringValue(callID),
			private.KeyServer:  structpb.NewStringValue("alpha"),
			private.KeyRecover: structpb.NewStringValue(strings.Repeat("sealed", 40)),
		}}),
	}}
}

func setHeader(key, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
