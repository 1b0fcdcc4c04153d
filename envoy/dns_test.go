package envoy

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// A backend on localhost listens on one of its two addresses, as servers do.
func TestLocalhost(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil && host == "::1" {
			t.Skip("this machine has no IPv6")
		}
		require.NoError(t, err)
		alpha := newRecorder(t, l, answer(200, "alpha"))
		alpha.Start()
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		g := newGateway(t).start()
		g.upstreams(Upstream{Cluster: "alpha", URL: &url.URL{Scheme: "http", Host: "localhost:" + port, Path: "/mcp"}})
		for range 4 {
			assert.Equal(t, "alpha", g.to(l.Addr().String()).body, host)
		}
		g.stop()
	}
}

// to makes a direct call to alpha that is pinned to the address; "" pins to none.
func (g *gateway) to(address string) reply {
	g.t.Helper()
	return g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha", "x-test-pin", address)
}

// ask makes Envoy resolve the upstream's name at d.
func (u *Upstream) ask(t *testing.T, d *mcptest.DNS) {
	t.Helper()
	at := netip.MustParseAddrPort(d.Addr())
	server := socketAddress(at.Addr().String(), uint32(at.Port()))
	server.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	c, err := pack(&caresv3.CaresDnsResolverConfig{Resolvers: []*corev3.Address{server}})
	require.NoError(t, err)
	u.resolver = extension("envoy.network.dns_resolver.cares", c)
}

// newPair serves "one" and "two" on the same port of two addresses.
func newPair(t *testing.T) (one, two *recorder, port string) {
	t.Helper()
	var a, b net.Listener
	require.Eventually(t, func() bool { // until the port is free on both
		var err error
		if a, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return false
		}
		if b, err = net.Listen("tcp", net.JoinHostPort("127.0.0.2", portOf(a))); err != nil {
			_ = a.Close()
		}
		return err == nil
	}, 5*time.Second, time.Millisecond)
	one, two = newRecorder(t, a, answer(200, "one")), newRecorder(t, b, answer(200, "two"))
	one.Start()
	two.Start()
	return one, two, portOf(a)
}

func portOf(l net.Listener) string {
	addr, _ := netip.ParseAddrPort(l.Addr().String())
	return strconv.Itoa(int(addr.Port()))
}

// A server with two addresses: a call goes to the one it is pinned to, or to the
// broker; never to the other.
func TestPinned(t *testing.T) {
	one, two, port := newPair(t)
	names := mcptest.NewDNS(t)
	names.Set("multi.test", "127.0.0.1", "127.0.0.2")
	g := newGateway(t).start()
	u := Upstream{Cluster: "alpha", URL: &url.URL{Scheme: "http", Host: "multi.test:" + port, Path: "/mcp"}}
	u.ask(t, names)
	g.upstreams(u)
	for range 10 {
		assert.Equal(t, "one", g.to("127.0.0.1:"+port).body)
		assert.Equal(t, "two", g.to("127.0.0.2:"+port).body)
	}
	assert.Empty(t, g.broker.requests())

	// An address that DNS does not give, and none.
	for _, pin := range []string{"127.0.0.3:" + port, "127.0.0.1:1", "nonsense", ""} {
		r := g.to(pin)
		assert.Equal(t, "broker", r.body, pin)
		assert.Equal(t, 200, r.status, pin)
	}
	for _, r := range g.broker.requests() {
		assert.NotEmpty(t, r.header.Get("x-patchbay-recover"))
		assert.Equal(t, body84, string(r.body))
	}

	// A lost session is recovered, and so is a dead address, as elsewhere.
	two.handle(answer(404, "lost"))
	assert.Equal(t, "broker", g.to("127.0.0.2:"+port).body)
	assert.Len(t, two.requests(), 11)
	two.CloseClientConnections()
	two.Close()
	assert.Equal(t, "broker", g.to("127.0.0.2:"+port).body)
	assert.Equal(t, "one", g.to("127.0.0.1:"+port).body)
	assert.Len(t, one.requests(), 11)
}

// DNS changes: a new address becomes direct, one that is gone leads to the
// broker although it could still be reached, and so do all when the name goes.
func TestPinnedFollowsDNS(t *testing.T) {
	_, _, port := newPair(t)
	names := mcptest.NewDNS(t)
	names.Set("multi.test", "127.0.0.1")
	g := newGateway(t).start()
	u := Upstream{Cluster: "alpha", URL: &url.URL{Scheme: "http", Host: "multi.test:" + port, Path: "/mcp"}}
	u.ask(t, names)
	g.upstreams(u)
	eventually := func(pin, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return g.to(pin+":"+port).body == want }, 15*time.Second, 50*time.Millisecond)
	}
	eventually("127.0.0.1", "one")
	assert.Equal(t, "broker", g.to("127.0.0.2:"+port).body)
	names.Set("multi.test", "127.0.0.2")
	eventually("127.0.0.2", "two")
	eventually("127.0.0.1", "broker")
}
