package extproc

import (
	"bytes"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// received are messages as Envoy sends them, with parts that are of no interest.
func received(t *testing.T) map[string][]byte {
	t.Helper()
	attributes := map[string]*structpb.Struct{"a": {Fields: map[string]*structpb.Value{"b": structpb.NewNumberValue(1.5)}}}
	out := map[string][]byte{}
	for name, m := range map[string]*extprocv3.ProcessingRequest{
		"headers": {
			MetadataContext: &corev3.Metadata{}, ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: 4},
			Attributes: attributes,
			Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
				EndOfStream: true,
				Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
					{Key: "a", RawValue: []byte("1")}, {Key: "b", Value: "2"}, {Key: "c"}, {}, {Key: "d", RawValue: bytes.Repeat([]byte("x"), 300)},
				}},
			}},
		},
		"body": {Attributes: attributes, Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: []byte(strings.Repeat("body ", 60)), EndOfStream: true},
		}},
		"more":     {Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte("x")}}},
		"trailers": {Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		"other":    {Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{}}},
		"empty":    {},
	} {
		raw, err := proto.Marshal(m)
		require.NoError(t, err)
		out[name] = raw
	}
	return out
}

// read reads a message that came in parts, which are overwritten afterwards, as
// gRPC does.
func read(parts ...[]byte) (in incoming, headers string, err error) {
	var b strings.Builder
	in.header = func(key, value []byte) { b.WriteString(string(key) + "=" + string(value) + " ") }
	var data mem.BufferSlice
	for _, p := range parts {
		data = append(data, mem.SliceBuffer(bytes.Clone(p)))
	}
	err = in.unmarshal(data)
	for _, d := range data {
		clear(d.ReadOnlyData())
	}
	return in, b.String(), err
}

// What is read does not depend on how gRPC cut the message.
func TestIncoming(t *testing.T) {
	for name, raw := range received(t) {
		for i := 0; i <= len(raw); i++ {
			parts := [][]byte{raw[:i], raw[i:]}
			if i == 0 {
				parts = [][]byte{raw}
			}
			in, headers, err := read(parts...)
			require.NoError(t, err, name)
			switch name {
			case "headers":
				assert.Equal(t, requestHeaders, in.kind)
				assert.Equal(t, "a=1 b=2 c= = d="+strings.Repeat("x", 300)+" ", headers)
				assert.True(t, in.end)
			case "body":
				assert.Equal(t, requestBody, in.kind)
				assert.Equal(t, strings.Repeat("body ", 60), string(in.body))
				assert.True(t, in.end)
			case "more":
				assert.Equal(t, "x", string(in.body))
				assert.False(t, in.end)
			case "trailers":
				assert.Equal(t, requestTrailers, in.kind)
			case "other":
				assert.EqualValues(t, 5, in.kind)
			case "empty":
				assert.Zero(t, in.kind)
			}
		}
	}
}

// A message that is cut off anywhere is refused, or is one that protobuf takes too.
func TestMalformedIncoming(t *testing.T) {
	for name, raw := range received(t) {
		for i := range raw {
			_, _, err := read(raw[:i])
			if err == nil {
				require.NoError(t, proto.Unmarshal(raw[:i], &extprocv3.ProcessingRequest{}), "%s, %d bytes", name, i)
			} else {
				require.ErrorIs(t, err, errWire)
			}
		}
	}
}

// Lengths of every size of their own are written as protobuf wants them.
func TestOutgoing(t *testing.T) {
	for _, n := range []int{0, 1, 100, 110, 118, 127, 128, 200, 16<<10 - 20, 16 << 10, 64 << 10, 3 << 20} {
		chunk := bytes.Repeat([]byte("x"), n)
		for _, end := range []bool{false, true} {
			m := decoded(t, bodyResponse(chunk, end))
			s := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			require.NotNil(t, s)
			assert.True(t, bytes.Equal(chunk, s.GetBody()))
			assert.Equal(t, end, s.GetEndOfStream())
		}
		r := decoded(t, immediate(404, [][]byte{[]byte("head"), chunk, nil, []byte("tail")})).GetImmediateResponse()
		assert.Equal(t, "head"+string(chunk)+"tail", string(r.GetBody()))
		assert.EqualValues(t, 404, r.GetStatus().GetCode())
		assert.Equal(t, "content-type", r.GetHeaders().GetSetHeaders()[0].GetHeader().GetKey())

		name := string(chunk[:min(n, 100_000)])
		m := decoded(t, headersResponse(func(b []byte) []byte {
			return message(b, 2, func(b []byte) []byte { return setHeader(b, name, name) })
		}, func(b []byte) []byte { return structString(b, name, name) }))
		h := m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()[0].GetHeader()
		assert.Equal(t, name, h.GetKey())
		assert.Equal(t, name, string(h.GetRawValue()))
		assert.Equal(t, name, m.GetDynamicMetadata().AsMap()[name])
	}
}

func decoded(t *testing.T, out outgoing) *extprocv3.ProcessingResponse {
	t.Helper()
	m := new(extprocv3.ProcessingResponse)
	require.NoError(t, proto.Unmarshal(mem.BufferSlice(out).Materialize(), m))
	require.Empty(t, m.ProtoReflect().GetUnknown())
	return m
}
