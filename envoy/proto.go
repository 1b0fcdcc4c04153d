package envoy

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// ownConnectTimeout bounds connecting to the gateway's own servers, which
	// are near.
	ownConnectTimeout = time.Second
	// ownMaxRequests is far above what an Envoy carries, so that the limits of
	// the servers behind are those that count.
	ownMaxRequests = 1 << 16
)

type anyMap = map[string]*anypb.Any

// checked is a message of Envoy's API: each knows the rules of its fields.
type checked interface {
	proto.Message
	ValidateAll() error
}

// pack wraps a message, checked by the rules of its own definition.
func pack(m checked) (*anypb.Any, error) {
	if err := m.ValidateAll(); err != nil {
		return nil, err
	}
	// Deterministic, because versions of resources are hashes of their bytes.
	a := new(anypb.Any)
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("%T: %w", m, err)
	}
	return a, nil
}

func httpFilter(name string, config *anypb.Any) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}}
}

func extension(name string, config *anypb.Any) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: config}
}

// keepalive makes HTTP/2 pings that end a connection whose peer is frozen after
// at most twice d.
func keepalive(d time.Duration) *corev3.KeepaliveSettings {
	return &corev3.KeepaliveSettings{Interval: durationpb.New(d), Timeout: durationpb.New(d)}
}

func http1() *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
	}}
}

func http1or2() *httpv3.HttpProtocolOptions_AutoConfig {
	return &httpv3.HttpProtocolOptions_AutoConfig{AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams: wrapperspb.UInt32(1000),
			ConnectionKeepalive:  &corev3.KeepaliveSettings{Interval: durationpb.New(30 * time.Second), Timeout: durationpb.New(10 * time.Second)},
		},
	}}
}
