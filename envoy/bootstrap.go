package envoy

import (
	"errors"
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/private"
)

// Defaults of a BootstrapConfig.
const (
	defaultNodeID         = "patchbay"
	defaultBodyLimit      = 4 << 20
	defaultMaxConnections = 50000
	defaultRequestTimeout = 60 * time.Second
)

// The pauses between two attempts to reach xDS; Envoy adds jitter.
const (
	xdsFirstRetry   = 200 * time.Millisecond
	xdsLongestRetry = time.Second
)

// BootstrapConfig is what differs between Envoys. Addresses of the gateway's
// own servers are "unix:///path" or "host:port".
type BootstrapConfig struct {
	// NodeID names this Envoy to xDS; "" is "patchbay".
	NodeID string
	// Listen is the endpoint, "host:port".
	Listen string
	// TLS makes the endpoint https; may be nil. Envoy reads the files.
	TLS *config.ListenerTLS
	// ExtProc, Broker and XDS are the gateway's gRPC, h2c and gRPC servers.
	ExtProc, Broker, XDS string
	// AdminSocket is the path of a Unix socket for Envoy's own admin
	// interface; "" is none.
	AdminSocket string
	// BodyLimit is the largest request body in bytes; 0 is 4 MiB.
	BodyLimit int64
	// NoAccessLog leaves out the report on direct calls: it saves a tenth of a
	// call's cost, and with it go the metrics and the log of direct calls, the
	// cancellation at a backend after a timeout, and the rescue of clients whose
	// answer broke off.
	NoAccessLog bool
	// MaxConnections bounds the clients' connections; 0 is 50000.
	MaxConnections int64
	// RequestTimeout bounds how long a client may take to send one request,
	// headers and body; 0 is 60 s. Responses are not bounded by it.
	RequestTimeout time.Duration
}

func (c *BootstrapConfig) setDefaults() {
	if c.NodeID == "" {
		c.NodeID = defaultNodeID
	}
	if c.BodyLimit == 0 {
		c.BodyLimit = defaultBodyLimit
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = defaultMaxConnections
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
}

// Bootstrap renders the configuration that Envoy starts with, YAML: the
// listener with its limits and the three clusters of the gateway itself. Routes
// and servers come over xDS (see XDS). An error says which value is wrong.
func Bootstrap(cfg BootstrapConfig) ([]byte, error) {
	b, err := bootstrap(cfg)
	if err != nil {
		return nil, fmt.Errorf("envoy bootstrap: %w", err)
	}
	// By way of JSON, whose field names the protobuf library knows; sorted by
	// the YAML library, so that the same input is the same bytes.
	asJSON, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("envoy bootstrap: %w", err)
	}
	out, err := yaml.JSONToYAML(asJSON)
	if err != nil {
		return nil, fmt.Errorf("envoy bootstrap: %w", err)
	}
	return out, nil
}

func bootstrap(cfg BootstrapConfig) (*bootstrapv3.Bootstrap, error) {
	if cfg.BodyLimit < 0 || cfg.MaxConnections < 0 || cfg.RequestTimeout < 0 {
		return nil, errors.New("limits must not be negative")
	}
	cfg.setDefaults()
	static, err := staticClusters(&cfg)
	if err != nil {
		return nil, err
	}
	listener, err := listener(&cfg)
	if err != nil {
		return nil, err
	}
	static.Listeners = append(static.Listeners, listener)
	overload, err := overload(cfg.MaxConnections)
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: cfg.NodeID, Cluster: "patchbay"},
		StaticResources:  static,
		DynamicResources: dynamicResources(),
		OverloadManager:  overload,
	}
	if cfg.AdminSocket != "" {
		addr, err := pipeAddress(cfg.AdminSocket)
		if err != nil {
			return nil, fmt.Errorf("adminSocket: %w", err)
		}
		addr.GetPipe().Mode = 0o600
		b.Admin = &bootstrapv3.Admin{Address: addr}
	}
	if err := b.ValidateAll(); err != nil {
		return nil, err
	}
	return b, nil
}

// dynamicResources asks for clusters and routes over one delta stream.
func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	xds := envoyGRPC(private.ClusterXDS)
	// Without it the pause between two attempts grows to 30 s, and an Envoy that
	// was there before the gateway accepts nobody for as long.
	xds.GetEnvoyGrpc().RetryPolicy = &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: durationpb.New(xdsFirstRetry), MaxInterval: durationpb.New(xdsLongestRetry),
	}}
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			GrpcServices:              []*corev3.GrpcService{xds},
			SetNodeOnFirstMessageOnly: true,
		},
		CdsConfig: adsSource(),
	}
}

// adsSource waits for its resources as long as it takes: until the routes are
// there the listener accepts nobody. A 404 in between would tell clients that
// their session is gone.
func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0),
	}
}

func envoyGRPC(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
	}}
}

// overload refuses connections beyond what the machine's memory is meant for.
func overload(maxConnections int64) (*overloadv3.OverloadManager, error) {
	c, err := pack(&downstreamv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: maxConnections})
	if err != nil {
		return nil, err
	}
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name:       "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: c},
	}}}, nil
}
