package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	familyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	roundv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	subsetv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/subset/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"

	"patchbay.dev/internal/private"
)

// setPinned gives the cluster of a server known by name an endpoint for each
// address of the name. Sessions live at one address, so each call says which, as
// private.KeyAddress.
//
// A call whose address is not among the endpoints (not any more, or not yet: DNS
// is asked at other times than the gateway asks it) must not reach another one:
// some servers would serve it there. It gets no endpoint at all, and the broker,
// which knows how to reach the address, takes it.
func setPinned(c *clusterv3.Cluster, addr *corev3.Address, resolver *corev3.TypedExtensionConfig) error {
	dns, err := pack(&dnsv3.DnsCluster{
		RespectDnsTtl:          true,
		DnsLookupFamily:        familyv3.DnsLookupFamily_ALL,
		TypedDnsResolverConfig: resolver,
	})
	if err != nil {
		return err
	}
	if err := setEndpoint(c, addr, false, nil); err != nil {
		return err
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns", TypedConfig: dns,
	}}
	c.LoadBalancingPolicy, err = pinned()
	return err
}

// pinned is the policy: the address that the call names, or none.
func pinned() (*clusterv3.LoadBalancingPolicy, error) {
	unused, err := policy("round_robin", &roundv3.RoundRobin{})
	if err != nil {
		return nil, err
	}
	none, err := policy("subset", &subsetv3.Subset{
		FallbackPolicy: subsetv3.Subset_NO_FALLBACK, // and no subset that a call could match
		SubsetLbPolicy: unused,
	})
	if err != nil {
		return nil, err
	}
	return policy("override_host", &overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Metadata: &metadatav3.MetadataKey{
			Key: private.Namespace,
			Path: []*metadatav3.MetadataKey_PathSegment{{
				Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: private.KeyAddress},
			}},
		}}},
		FallbackPolicy: none,
	})
}

func policy(name string, m checked) (*clusterv3.LoadBalancingPolicy, error) {
	config, err := pack(m)
	if err != nil {
		return nil, err
	}
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: extension("envoy.load_balancing_policies."+name, config),
	}}}, nil
}
