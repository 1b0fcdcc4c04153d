package envoy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"patchbay.dev/internal/config"
)

// stat reads a counter of Envoy's from its admin socket.
func (g *gateway) stat(name string) int {
	g.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", g.config.AdminSocket)
	}}}
	resp, err := client.Get("http://envoy/stats?filter=^" + url.QueryEscape(regexp.QuoteMeta(name)) + "$")
	require.NoError(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	m := regexp.MustCompile(`: (\d+)`).FindSubmatch(b)
	require.NotNil(g.t, m, "%s: %s", name, b)
	n, err := strconv.Atoi(string(m[1]))
	require.NoError(g.t, err)
	return n
}

// counted is the value of a counter.
func counted(t *testing.T, c prometheus.Collector) int {
	t.Helper()
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	return int(families[0].GetMetric()[0].GetCounter().GetValue())
}

// Servers come, change and go under load: no call fails, and an answer that is
// on its way arrives whole.
func TestServersComeAndGo(t *testing.T) { // D11, D12
	release := make(chan struct{})
	streaming := newRecorder(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "last\n")
	})
	streaming.Start()
	alpha, beta := newRecorder(t, nil, answer(200, "alpha")), newRecorder(t, nil, answer(200, "beta"))
	alpha.Start()
	beta.Start()
	g := newGateway(t)
	g.xds.removeAfter = 50 * time.Millisecond
	g.start()
	g.upstreams(alpha.upstream(t, "alpha"), streaming.upstream(t, "stream"))

	req, err := http.NewRequest("POST", "http://"+g.listen+"/mcp", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("x-test-to", "stream")
	resp, err := g.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body := bufio.NewReader(resp.Body)
	line, err := body.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "first\n", line)

	ctx, cancel := context.WithCancel(context.Background())
	var load errgroup.Group
	for range 4 {
		load.Go(func() error {
			for ctx.Err() == nil {
				r, err := g.try("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
				if err == nil && r.body != "alpha" && r.body != "beta" {
					err = fmt.Errorf("alpha: %d %s", r.status, r.body)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range 20 {
		name := fmt.Sprintf("new-%d", i)
		again := alpha
		if i%2 == 0 {
			again = beta // alpha's cluster moves to another address
		}
		g.upstreams(again.upstream(t, "alpha"), beta.upstream(t, name))
		assert.Equal(t, "beta", g.do("POST", "/mcp", nil, "x-test-to", name).body) // at once
		assert.False(t, g.xds.Routable("stream"))
	}
	require.Eventually(t, func() bool { return g.stat("cluster_manager.active_clusters") == 3+2*2 }, 5*time.Second, 20*time.Millisecond)
	cancel()
	require.NoError(t, load.Wait())
	close(release)
	line, err = body.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "last\n", line)
}

func TestRoutableFollowsEnvoy(t *testing.T) {
	alpha := newRecorder(t, nil, answer(200, "alpha"))
	alpha.Start()
	g := newGateway(t)
	require.NoError(t, g.xds.SetUpstreams([]Upstream{alpha.upstream(t, "alpha")}))
	assert.False(t, g.xds.Routable("alpha"))
	assert.Zero(t, g.xds.Connected())
	g.start()
	g.upstreams(alpha.upstream(t, "alpha"))
	assert.Equal(t, 1, g.xds.Connected())
	assert.False(t, g.xds.Routable("beta"))

	// The same again, and the routes: nothing is sent.
	require.NoError(t, g.xds.SetUpstreams([]Upstream{alpha.upstream(t, "alpha")}))
	assert.True(t, g.xds.Routable("alpha"))
	g.upstreams(alpha.upstream(t, "alpha"), alpha.upstream(t, "beta"))
	assert.Zero(t, g.stat("cluster_manager.cluster_modified"))
	assert.Equal(t, 1, g.stat("http.mcp.rds.mcp.config_reload"))

	// The gateway starts anew: Envoy keeps what it has and says so.
	g.grpc.Stop()
	require.Eventually(t, func() bool { return g.xds.Connected() == 0 }, 5*time.Second, 10*time.Millisecond)
	assert.False(t, g.xds.Routable("alpha"))
	assert.Equal(t, "alpha", g.do("POST", "/mcp", nil, "x-test-to", "alpha").body)
	g.startXDS()
	g.upstreams(alpha.upstream(t, "alpha"), alpha.upstream(t, "beta"))
	assert.Zero(t, g.stat("cluster_manager.cluster_modified"))

	g.stop()
	require.Eventually(t, func() bool { return g.xds.Connected() == 0 }, 5*time.Second, 10*time.Millisecond)
	assert.False(t, g.xds.Routable("alpha"))
}

// A cluster that Envoy refuses is not routable and takes no other down.
func TestRefusedCluster(t *testing.T) {
	alpha := newRecorder(t, nil, answer(200, "alpha"))
	alpha.Start()
	g := newGateway(t).start()
	broken := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(broken, []byte("-----BEGIN CERTIFICATE-----\nbroken\n"), 0o600))
	bad := Upstream{Cluster: "bad", URL: &url.URL{Scheme: "https", Host: "127.0.0.1:1"}, TLS: &config.ServerTLS{CAFile: broken}}
	require.NoError(t, g.xds.SetUpstreams([]Upstream{bad, alpha.upstream(t, "alpha"), alpha.upstream(t, "alpha-2")}))
	require.Eventually(t, func() bool { return g.xds.Routable("alpha") && g.xds.Routable("alpha-2") }, 5*time.Second, 10*time.Millisecond)
	assert.False(t, g.xds.Routable("bad"))
	assert.Equal(t, 1, counted(t, g.xds.metrics.nacks))
	assert.Equal(t, "alpha", g.do("POST", "/mcp", nil, "x-test-to", "alpha").body)

	bad.TLS = nil
	g.upstreams(bad, alpha.upstream(t, "alpha")) // repaired
}

func TestNackNamesClusters(t *testing.T) {
	nack := partly + "a: no, b/backend: no"
	for name, want := range map[string]bool{"a": false, "b/backend": false, "b": true, "backend": true, "c": true} {
		assert.Equal(t, want, acceptedDespite(name, nack), name)
	}
	assert.False(t, acceptedDespite("c", "the message cannot be read"))
}

// lazyEnvoy connects to xDS as an Envoy does, and answers when told to.
func lazyEnvoy(t *testing.T, g *gateway) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+g.dir+"/xds", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	return s
}

func TestEveryEnvoyMustAcknowledge(t *testing.T) {
	g := newGateway(t)
	u := Upstream{Cluster: "alpha", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "lazy"}, TypeUrl: resourcev3.ClusterType}
	ack := func(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
		t.Helper()
		resp, err := s.Recv()
		require.NoError(t, err)
		require.NoError(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resourcev3.ClusterType, ResponseNonce: resp.GetNonce()}))
	}
	eager, lazy := lazyEnvoy(t, g), lazyEnvoy(t, g)
	require.NoError(t, eager.Send(request))
	ack(eager)
	require.NoError(t, g.xds.SetUpstreams([]Upstream{u}))
	ack(eager)
	require.Eventually(t, func() bool { return g.xds.Routable("alpha") }, 5*time.Second, time.Millisecond)

	require.NoError(t, lazy.Send(request))
	require.Eventually(t, func() bool { return g.xds.Connected() == 2 }, 5*time.Second, time.Millisecond)
	assert.False(t, g.xds.Routable("alpha"))
	ack(lazy)
	require.Eventually(t, func() bool { return g.xds.Routable("alpha") }, 5*time.Second, time.Millisecond)

	u.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:2"} // changed: the old acknowledgements are void
	require.NoError(t, g.xds.SetUpstreams([]Upstream{u}))
	assert.False(t, g.xds.Routable("alpha"))
}

func TestXDSIsDeltaOnly(t *testing.T) {
	g := newGateway(t)
	conn, err := grpc.NewClient("unix://"+g.dir+"/xds", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	require.NoError(t, err)
	_, err = s.Recv()
	assert.Equal(t, codes.Unimplemented, status.Code(err))
}
