package envoy

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	familyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
)

// maxSocketPath is the longest path of a Unix socket on Linux (sun_path less
// the closing zero); macOS has 103.
const maxSocketPath = 107

// parseAddress reads "unix:///path" or "host:port". The host may be a name, for
// which resolve is true: Envoy then needs a cluster that asks DNS.
func parseAddress(s string) (addr *corev3.Address, resolve bool, err error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		a, err := pipeAddress(path)
		return a, false, err
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return nil, false, err
	}
	_, ipErr := netip.ParseAddr(host)
	return socketAddress(host, port), ipErr != nil, nil
}

// listenAddress reads "host:port" of a listener. An empty host is every
// address; a name is resolved here, since Envoy binds to IP addresses only.
func listenAddress(s string) (*corev3.Address, error) {
	host, port, err := splitHostPort(s)
	if err != nil {
		return nil, err
	}
	if host == "" {
		a := socketAddress("::", port)
		a.GetSocketAddress().Ipv4Compat = true
		return a, nil
	}
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", s, err)
	}
	return socketAddress(ip.String(), port), nil
}

func splitHostPort(s string) (host string, port uint32, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: expected host:port or unix:///path: %w", s, err)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("address %q: expected a port from 1 to 65535, not %q", s, p)
	}
	return host, uint32(n), nil
}

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func pipeAddress(path string) (*corev3.Address, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("socket %q: expected an absolute path, as in unix:///run/patchbay/broker.sock", path)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %q: the path has %d bytes, the system allows %d: choose a shorter directory", path, len(path), maxSocketPath)
	}
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: 0}}}, nil
}

// setEndpoint gives the cluster its one endpoint and the discovery type that
// this endpoint needs.
func setEndpoint(c *clusterv3.Cluster, addr *corev3.Address, resolve bool, meta *corev3.Metadata) error {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	if resolve {
		dns, err := pack(&dnsv3.DnsCluster{
			RespectDnsTtl:   true,
			DnsLookupFamily: familyv3.DnsLookupFamily_ALL,
			// Tries both families of a name such as localhost (RFC 8305), and
			// keeps to one address where there are several: only the gateway's
			// own servers come here, MCP servers go by setPinned.
			AllAddressesInSingleEndpoint: true,
		})
		if err != nil {
			return err
		}
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.cluster.dns", TypedConfig: dns,
		}}
	}
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{
		ClusterName: c.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: addr}},
			Metadata:       meta,
		}}}},
	}
	return nil
}
