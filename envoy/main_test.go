package envoy

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(superviseEnv); arg != "" {
		os.Exit(superviseOnly(arg))
	}
	goleak.VerifyTestMain(m)
}

func envoyPath(t *testing.T) string {
	t.Helper()
	path, err := Find()
	require.NoError(t, err)
	return path
}

// discardLog keeps refused handshakes out of the tests' output.
var discardLog = log.New(io.Discard, "", 0)

// seen is a request as a server got it.
type seen struct {
	method, path, host, proto string
	header                    http.Header
	body                      []byte
}

// recorder is a real HTTP server that keeps what it gets.
type recorder struct {
	*httptest.Server
	mu      sync.Mutex
	handler http.HandlerFunc
	got     []seen
}

// newRecorder serves on l (nil: any loopback port), HTTP/1 and h2c.
func newRecorder(t *testing.T, l net.Listener, handler http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{handler: handler}
	r.Server = httptest.NewUnstartedServer(r)
	if l != nil {
		require.NoError(t, r.Listener.Close())
		r.Listener = l
	}
	r.Config.Protocols = new(http.Protocols)
	r.Config.Protocols.SetHTTP1(true)
	r.Config.Protocols.SetUnencryptedHTTP2(true)
	r.Config.Protocols.SetHTTP2(true)
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.got = append(r.got, seen{req.Method, req.URL.Path, req.Host, req.Proto, req.Header.Clone(), body})
	h := r.handler
	r.mu.Unlock()
	h(w, req)
}

func (r *recorder) requests() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]seen(nil), r.got...)
}

func (r *recorder) handle(h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler = h
}

func (r *recorder) upstream(t *testing.T, cluster string) Upstream {
	t.Helper()
	u, err := url.Parse(r.URL)
	require.NoError(t, err)
	return Upstream{Cluster: cluster, URL: u}
}

func answer(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// gateway is an Envoy with everything around it.
type gateway struct {
	t       *testing.T
	listen  string
	dir     string
	xds     *XDS
	grpc    *grpc.Server // of xds
	decider *decider
	broker  *recorder
	config  BootstrapConfig
	client  *http.Client
	logs    lockedLines
	metrics *Metrics
	ready   chan struct{}
	ended   chan error

	stopOnce sync.Once
	stopFunc func()
}

// newGateway makes all of it but Envoy itself.
func newGateway(t *testing.T) *gateway {
	t.Helper()
	dir, err := os.MkdirTemp("", "pb") // t.TempDir's paths are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &gateway{t: t, dir: dir, listen: freeAddress(t), client: &http.Client{
		Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(g.client.CloseIdleConnections)
	g.decider = startDecider(t, g.socket("extproc"))
	g.broker = newRecorder(t, g.socket("broker"), answer(200, "broker"))
	g.broker.Start()
	g.startXDS()
	g.config = BootstrapConfig{
		Listen: g.listen, AdminSocket: filepath.Join(dir, "admin"),
		ExtProc: "unix://" + dir + "/extproc", Broker: "unix://" + dir + "/broker", XDS: "unix://" + dir + "/xds",
	}
	return g
}

func (g *gateway) startXDS() {
	g.xds = NewXDS(slog.New(slog.NewTextHandler(testWriter{g.t}, nil)), nil)
	g.grpc = grpc.NewServer()
	g.xds.Register(g.grpc)
	serveGRPC(g.t, g.grpc, g.socket("xds"))
	g.t.Cleanup(g.xds.Close)
	routes, err := Routes(RouteOptions{BodyLimit: 4 << 20})
	require.NoError(g.t, err)
	require.NoError(g.t, g.xds.SetRoutes(routes))
}

// start runs Envoy and waits until it serves.
func (g *gateway) start() *gateway {
	g.t.Helper()
	b, err := Bootstrap(g.config)
	require.NoError(g.t, err)
	path := envoyPath(g.t) // here: a test can be failed by its own goroutine only
	ctx, cancel := context.WithCancel(context.Background())
	g.ready, g.ended = make(chan struct{}, 16), make(chan error, 1)
	g.metrics = NewMetrics(nil)
	ended := g.ended
	go func() {
		ended <- Supervise(ctx, ProcessConfig{
			Path: path, Bootstrap: b, Listen: g.listen, TLS: g.config.TLS != nil, Concurrency: 2,
			Ready: func() { g.ready <- struct{}{} }, Logs: g.logs.add, Log: slog.New(slog.NewTextHandler(testWriter{g.t}, nil)),
			Metrics: g.metrics,
		})
	}()
	g.stopFunc = func() {
		cancel()
		assert.NoError(g.t, <-ended)
		if g.t.Failed() {
			g.t.Log("envoy's log:\n" + strings.Join(g.logs.all(), "\n"))
		}
	}
	g.t.Cleanup(g.stop)
	g.awaitReady()
	return g
}

// awaitReady waits until Envoy has started, also again.
func (g *gateway) awaitReady() {
	g.t.Helper()
	select {
	case <-g.ready:
	case err := <-g.ended:
		g.ended <- err
		require.NoError(g.t, err)
	case <-time.After(20 * time.Second):
		require.Fail(g.t, "envoy is not ready", strings.Join(g.logs.all(), "\n"))
	}
}

func (g *gateway) stop() { g.stopOnce.Do(g.stopFunc) }

// upstreams sets the servers and waits until they are routable.
func (g *gateway) upstreams(list ...Upstream) {
	g.t.Helper()
	changed := make(chan struct{}, 1)
	g.xds.OnChange(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	require.NoError(g.t, g.xds.SetUpstreams(list))
	deadline := time.After(10 * time.Second)
	for _, u := range list {
		for !g.xds.Routable(u.Cluster) {
			select {
			case <-changed:
			case <-deadline:
				require.Fail(g.t, "not routable: "+u.Cluster, strings.Join(g.logs.all(), "\n"))
			}
		}
	}
}

func (g *gateway) socket(name string) net.Listener {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	require.NoError(g.t, err)
	return l
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// reply is a response as the client got it.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are name, value, name, value.
func (g *gateway) do(method, path string, body []byte, headers ...string) reply {
	g.t.Helper()
	r, err := g.try(method, path, body, headers...)
	require.NoError(g.t, err)
	return r
}

func (g *gateway) try(method, path string, body []byte, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, "http://"+g.listen+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[http.CanonicalHeaderKey(headers[i])] = append(req.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

type lockedLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *lockedLines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

func (l *lockedLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
