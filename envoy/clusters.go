package envoy

import (
	"fmt"
	"net"
	"net/url"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	rulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/composite/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/private"
)

// Defaults of an Upstream.
const (
	defaultConnectTimeout = 2 * time.Second
	defaultMaxRequests    = 4096
	// backendIdle is shorter than the 5 s after which Node and uvicorn close
	// idle connections, so that no request meets a closing one.
	backendIdle = 4 * time.Second
)

// backendSuffix makes the name of a server's own cluster from the name of the
// composite that routes name.
const backendSuffix = "/backend"

// httpOptions is the key of a cluster's HTTP options.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// Upstream is one MCP server as Envoy sees it.
type Upstream struct {
	// Cluster is the name that ext_proc puts into private.HeaderCluster. It holds
	// no slash.
	Cluster string
	// URL is the server's endpoint. Host and scheme count here; ext_proc writes
	// path and authority.
	URL *url.URL
	// TLS changes how an https server is verified; may be nil.
	TLS *config.ServerTLS
	// MaxRequests bounds the calls that run at the same time; 0 is 4096.
	MaxRequests uint32
	// ConnectTimeout bounds a connection attempt; 0 is 2 s.
	ConnectTimeout time.Duration

	resolver *corev3.TypedExtensionConfig // nil: the system's; tests have their own
}

// Clusters returns what Envoy needs for one server: the cluster that routes
// name, a composite of [the server, the broker], and the server's own. The
// first attempt goes to the server and the second to the broker, as does a first
// one for which the server has no endpoint.
func (u *Upstream) clusters() ([]*clusterv3.Cluster, error) {
	backend, err := u.backend()
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", u.Cluster, err)
	}
	composite, err := u.composite(backend.Name)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", u.Cluster, err)
	}
	for _, c := range []*clusterv3.Cluster{backend, composite} {
		if err := c.ValidateAll(); err != nil {
			return nil, fmt.Errorf("cluster %q: %w", u.Cluster, err)
		}
	}
	return []*clusterv3.Cluster{backend, composite}, nil
}

func (u *Upstream) connectTimeout() *durationpb.Duration {
	if u.ConnectTimeout > 0 {
		return durationpb.New(u.ConnectTimeout)
	}
	return durationpb.New(defaultConnectTimeout)
}

func (u *Upstream) limits() *clusterv3.CircuitBreakers {
	n := u.MaxRequests
	if n == 0 {
		n = defaultMaxRequests
	}
	return limits(n)
}

// limits allows n requests, and as many connections, queued requests and
// retries: with Envoy's default of three retries most of a burst of lost
// sessions would reach the clients as raw 404s.
func limits(n uint32) *clusterv3.CircuitBreakers {
	v := wrapperspb.UInt32(n)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: v, MaxPendingRequests: v, MaxRequests: v, MaxRetries: v,
	}}}
}

// composite makes the cluster that routes name. Retries count against its
// limits, and only its upstream filters run (those of its members do not); the
// protocol is each member's own.
func (u *Upstream) composite(backend string) (*clusterv3.Cluster, error) {
	members, err := pack(&compositev3.ClusterConfig{Clusters: []*compositev3.ClusterConfig_ClusterEntry{
		{Name: backend}, {Name: private.ClusterBroker},
	}})
	if err != nil {
		return nil, err
	}
	filters, err := recoverFilters()
	if err != nil {
		return nil, err
	}
	options, err := pack(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: http1(),
		HttpFilters:             filters,
	})
	if err != nil {
		return nil, err
	}
	return &clusterv3.Cluster{
		Name:           u.Cluster,
		ConnectTimeout: u.connectTimeout(),
		LbPolicy:       clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.composite", TypedConfig: members,
		}},
		CircuitBreakers:               u.limits(),
		TypedExtensionProtocolOptions: anyMap{httpOptions: options},
	}, nil
}

// recoverFilters gives the sealed recovery context to the broker's endpoint
// and to nobody else. What a client may have sent under that name is removed
// first, also for backends.
func recoverFilters() ([]*hcmv3.HttpFilter, error) {
	value := fmt.Sprintf("%%CEL('%s' in xds.upstream_host_metadata.filter_metadata ? metadata.filter_metadata['%s']['%s'] : '')%%",
		private.Namespace, private.Namespace, private.KeyRecover)
	set := &rulesv3.HeaderMutation{Action: &rulesv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: private.HeaderRecover, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
	remove := &rulesv3.HeaderMutation{Action: &rulesv3.HeaderMutation_Remove{Remove: private.HeaderRecover}}
	mutation, err := pack(&mutationv3.HeaderMutation{Mutations: &mutationv3.Mutations{
		RequestMutations: []*rulesv3.HeaderMutation{remove, set},
	}})
	if err != nil {
		return nil, err
	}
	codec, err := pack(&codecv3.UpstreamCodec{})
	if err != nil {
		return nil, err
	}
	return []*hcmv3.HttpFilter{
		httpFilter("patchbay.recover", mutation),
		httpFilter("envoy.filters.http.upstream_codec", codec),
	}, nil
}

// backend makes the server's own cluster: HTTP/1.1 over plain text, over TLS
// what ALPN agrees on.
func (u *Upstream) backend() (*clusterv3.Cluster, error) {
	addr, resolve, err := upstreamAddress(u.URL)
	if err != nil {
		return nil, err
	}
	c := &clusterv3.Cluster{
		Name:            u.Cluster + backendSuffix,
		ConnectTimeout:  u.connectTimeout(),
		CircuitBreakers: u.limits(),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{
			TcpKeepalive: &corev3.TcpKeepalive{
				KeepaliveProbes: wrapperspb.UInt32(3), KeepaliveTime: wrapperspb.UInt32(30), KeepaliveInterval: wrapperspb.UInt32(10),
			},
		},
	}
	if resolve {
		err = setPinned(c, addr, u.resolver)
	} else {
		err = setEndpoint(c, addr, false, nil)
	}
	if err != nil {
		return nil, err
	}
	options := &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(backendIdle)},
		UpstreamProtocolOptions:   http1(),
	}
	if u.URL.Scheme == "https" {
		if c.TransportSocket, err = upstreamTLS(u.URL.Hostname(), u.TLS); err != nil {
			return nil, err
		}
		options.UpstreamProtocolOptions = http1or2()
	}
	packed, err := pack(options)
	if err != nil {
		return nil, err
	}
	c.TypedExtensionProtocolOptions = anyMap{httpOptions: packed}
	return c, nil
}

// upstreamAddress is where the URL points to, with the scheme's default port.
func upstreamAddress(u *url.URL) (addr *corev3.Address, resolve bool, err error) {
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, false, fmt.Errorf("url %q: expected http or https", u.Redacted())
	case u.Hostname() == "":
		return nil, false, fmt.Errorf("url %q: it names no host", u.Redacted())
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	return parseAddress(net.JoinHostPort(u.Hostname(), port))
}

// staticClusters are the clusters of the bootstrap: the gateway's own servers.
func staticClusters(cfg *BootstrapConfig) (*bootstrapv3.Bootstrap_StaticResources, error) {
	extProc, err := ownCluster(private.ClusterExtProc, cfg.ExtProc, &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams:        wrapperspb.UInt32(1000),
		InitialStreamWindowSize:     wrapperspb.UInt32(1 << 20),
		InitialConnectionWindowSize: wrapperspb.UInt32(16 << 20),
		// The only thing that notices a frozen process: in full duplex no
		// message timeout runs.
		ConnectionKeepalive: keepalive(time.Second),
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("extProc %w", err)
	}
	role, err := structpb.NewStruct(map[string]any{"role": "broker"})
	if err != nil {
		return nil, err
	}
	broker, err := ownCluster(private.ClusterBroker, cfg.Broker, &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams: wrapperspb.UInt32(1024),
		ConnectionKeepalive:  keepalive(5 * time.Second),
	}, &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{private.Namespace: role}})
	if err != nil {
		return nil, fmt.Errorf("broker %w", err)
	}
	xds, err := ownCluster(private.ClusterXDS, cfg.XDS, &corev3.Http2ProtocolOptions{ConnectionKeepalive: keepalive(5 * time.Second)}, nil)
	if err != nil {
		return nil, fmt.Errorf("xds %w", err)
	}
	return &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{extProc, broker, xds}}, nil
}

func ownCluster(name, address string, h2 *corev3.Http2ProtocolOptions, meta *corev3.Metadata) (*clusterv3.Cluster, error) {
	addr, resolve, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	options, err := pack(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: h2},
		},
	}})
	if err != nil {
		return nil, err
	}
	c := &clusterv3.Cluster{
		Name:                          name,
		ConnectTimeout:                durationpb.New(ownConnectTimeout),
		CircuitBreakers:               limits(ownMaxRequests),
		TypedExtensionProtocolOptions: anyMap{httpOptions: options},
	}
	return c, setEndpoint(c, addr, resolve, meta)
}
