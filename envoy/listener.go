package envoy

import (
	"fmt"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	rulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"patchbay.dev/internal/private"
)

// Limits on what a client may send or hold, by Envoy's guide for edge proxies
// except where a comment says otherwise.
const (
	maxHeaderKB          = 60
	maxHeaderCount       = 100
	headersTimeout       = 10 * time.Second
	connectionIdle       = 15 * time.Minute
	connectionBuffer     = 1 << 20
	streamsPerConnection = 256 // an agent platform keeps many sessions on one connection
	streamWindow         = 64 << 10
	connectionWindow     = 1 << 20
)

func listener(cfg *BootstrapConfig) (*listenerv3.Listener, error) {
	addr, err := listenAddress(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	hcm, err := connectionManager(cfg)
	if err != nil {
		return nil, err
	}
	packed, err := pack(hcm)
	if err != nil {
		return nil, err
	}
	chain := &listenerv3.FilterChain{
		Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed},
		}},
		TransportSocketConnectTimeout: durationpb.New(headersTimeout),
	}
	if cfg.TLS != nil {
		if chain.TransportSocket, err = listenerTLS(cfg.TLS); err != nil {
			return nil, err
		}
	}
	return &listenerv3.Listener{
		Name:                          "mcp",
		Address:                       addr,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		FilterChains:                  []*listenerv3.FilterChain{chain},
		// With SO_REUSEPORT a second gateway on the same port would start
		// without an error and take half of the clients.
		EnableReusePort: wrapperspb.Bool(false),
	}, nil
}

func connectionManager(cfg *BootstrapConfig) (*hcmv3.HttpConnectionManager, error) {
	strip, err := stripHeaders()
	if err != nil {
		return nil, err
	}
	replies, err := localReplies()
	if err != nil {
		return nil, err
	}
	filters, err := httpFilters()
	if err != nil {
		return nil, err
	}
	var log []*accesslogv3.AccessLog
	if !cfg.NoAccessLog {
		if log, err = accessLog(); err != nil {
			return nil, err
		}
	}
	return &hcmv3.HttpConnectionManager{
		AccessLog:                     log,
		StatPrefix:                    "mcp",
		CodecType:                     hcmv3.HttpConnectionManager_AUTO,
		UseRemoteAddress:              wrapperspb.Bool(true),
		NormalizePath:                 wrapperspb.Bool(true),
		MergeSlashes:                  true,
		PathWithEscapedSlashesAction:  hcmv3.HttpConnectionManager_REJECT_REQUEST,
		ServerHeaderTransformation:    hcmv3.HttpConnectionManager_PASS_THROUGH,
		RequestHeadersTimeout:         durationpb.New(headersTimeout),
		RequestTimeout:                durationpb.New(cfg.RequestTimeout),
		StreamIdleTimeout:             durationpb.New(streamIdle),
		MaxRequestHeadersKb:           wrapperspb.UInt32(maxHeaderKB),
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{strip},
		LocalReplyConfig:              replies,
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:                  durationpb.New(connectionIdle),
			MaxHeadersCount:              wrapperspb.UInt32(maxHeaderCount),
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_REJECT_REQUEST,
		},
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        wrapperspb.UInt32(streamsPerConnection),
			InitialStreamWindowSize:     wrapperspb.UInt32(streamWindow),
			InitialConnectionWindowSize: wrapperspb.UInt32(connectionWindow),
		},
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: private.RouteConfig, ConfigSource: adsSource(),
		}},
		HttpFilters: filters,
	}, nil
}

// stripHeaders removes, before the first route is matched, what only the
// gateway may set: its own headers, and those by which a client could steer
// Envoy (which honours them from internal addresses).
func stripHeaders() (*corev3.TypedExtensionConfig, error) {
	var mutations []*rulesv3.HeaderMutation
	for _, prefix := range []string{private.HeaderPrefix, "x-envoy-", "x-forwarded-", "forwarded"} {
		mutations = append(mutations, &rulesv3.HeaderMutation{Action: &rulesv3.HeaderMutation_RemoveOnMatch_{
			RemoveOnMatch: &rulesv3.HeaderMutation_RemoveOnMatch{KeyMatcher: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}, IgnoreCase: true,
			}},
		}})
	}
	c, err := pack(&earlyv3.HeaderMutation{Mutations: mutations})
	if err != nil {
		return nil, err
	}
	return extension("patchbay.strip", c), nil
}

func httpFilters() ([]*hcmv3.HttpFilter, error) {
	extProc, err := pack(extProc())
	if err != nil {
		return nil, err
	}
	cors, err := pack(&corsv3.Cors{})
	if err != nil {
		return nil, err
	}
	router, err := pack(&routerv3.Router{SuppressEnvoyHeaders: true})
	if err != nil {
		return nil, err
	}
	return []*hcmv3.HttpFilter{
		httpFilter(corsFilter, cors), // first: it also sees what ext_proc answers
		httpFilter(extProcFilter, extProc),
		httpFilter("envoy.filters.http.router", router),
	}, nil
}

// extProc is asked once for each POST, with headers and body, and not about
// responses: the cheapest exchange that can rewrite a body. Where it fails, the
// request fails.
func extProc() *extprocv3.ExternalProcessor {
	return &extprocv3.ExternalProcessor{
		GrpcService:      envoyGRPC(private.ClusterExtProc),
		FailureModeAllow: false,
		StatusOnError:    &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		ProcessingMode: &extprocv3.ProcessingMode{
			RequestHeaderMode:   extprocv3.ProcessingMode_SEND,
			RequestBodyMode:     extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			RequestTrailerMode:  extprocv3.ProcessingMode_SEND,
			ResponseHeaderMode:  extprocv3.ProcessingMode_SKIP,
			ResponseBodyMode:    extprocv3.ProcessingMode_NONE,
			ResponseTrailerMode: extprocv3.ProcessingMode_SKIP,
		},
		MetadataOptions: &extprocv3.MetadataOptions{
			ReceivingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{private.Namespace}},
		},
		// Routing: host, path and authority of the backend. Envoy's own: the
		// time limit of a call.
		MutationRules: &rulesv3.HeaderMutationRules{
			AllowAllRouting: wrapperspb.Bool(true), AllowEnvoy: wrapperspb.Bool(true),
		},
	}
}
