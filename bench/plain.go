package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/yaml"
)

// plainIdle is how long Envoy keeps an idle connection to the fixture: as long
// as the gateway's clusters do.
const plainIdle = 4 * time.Second

// plainBootstrap turns the gateway's bootstrap into the one of the floor: the
// same listener with all its limits, without ext_proc, and one route to the
// fixture.
func plainBootstrap(gateway []byte, fixture string) ([]byte, error) {
	asJSON, err := yaml.YAMLToJSON(gateway)
	if err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(asJSON, &b); err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	cluster, err := plainCluster(fixture)
	if err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	b.DynamicResources = nil
	b.StaticResources.Clusters = []*clusterv3.Cluster{cluster}
	if err := withoutExtProc(b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig()); err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	if asJSON, err = (protojson.MarshalOptions{UseProtoNames: true}).Marshal(&b); err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	out, err := yaml.JSONToYAML(asJSON)
	if err != nil {
		return nil, fmt.Errorf("plain bootstrap: %w", err)
	}
	return out, nil
}

// withoutExtProc changes the packed connection manager.
func withoutExtProc(packed *anypb.Any) error {
	var hcm hcmv3.HttpConnectionManager
	if err := packed.UnmarshalTo(&hcm); err != nil {
		return err //nolint:wrapcheck // the caller says what it is about
	}
	before := len(hcm.GetHttpFilters())
	hcm.HttpFilters = slices.DeleteFunc(hcm.GetHttpFilters(), func(f *hcmv3.HttpFilter) bool {
		return f.GetName() == "envoy.filters.http.ext_proc"
	})
	if len(hcm.GetHttpFilters()) == before {
		return errors.New("the gateway's listener has no ext_proc filter")
	}
	hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
		VirtualHosts: []*routev3.VirtualHost{{
			Name: "fixture", Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "fixture"},
					Timeout:          durationpb.New(0),
				}},
			}},
		}},
	}}
	return packed.MarshalFrom(&hcm) //nolint:wrapcheck // the caller says what it is about
}

func plainCluster(fixture string) (*clusterv3.Cluster, error) {
	host, port, err := net.SplitHostPort(fixture)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the number
	}
	options, err := anypb.New(&httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(plainIdle)},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				},
			},
		},
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // cannot happen
	}
	limit := wrapperspb.UInt32(4096)
	return &clusterv3.Cluster{
		Name:                 "fixture",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(2 * time.Second),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit,
		}}},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: "fixture",
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
					}}},
				}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
		},
	}, nil
}
