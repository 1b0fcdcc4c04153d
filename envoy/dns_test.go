package envoy

import (
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			assert.Equal(t, "alpha", g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha").body, host)
		}
		g.stop()
	}
}
