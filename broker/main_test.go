package broker_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/broker"
	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/internal/metrics"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait is far more than anything here takes.
const wait = 10 * time.Second

// bodyLimit is that of every gateway here.
const bodyLimit = 256 << 10

// gateway is a broker with all its real parts, alone: no Envoy, no ext_proc.
type gateway struct {
	t        *testing.T
	registry *registry.Registry
	manager  *upstream.Manager
	table    *session.Table
	keys     *session.Keyring
	broker   *broker.Broker
	gatherer *prometheus.Registry
	log      *logBuffer
	url      string
}

type options struct {
	broker  func(*broker.Options)
	h2c     bool               // HTTP/2, as Envoy speaks with the broker
	conn    func(*net.TCPConn) // sees every connection of a client
	servers []config.Server    // with a watcher each
	now     func() time.Time   // of the sessions
	server  func(*http.Server) // changes the HTTP server
}

// start makes a gateway that ends with the test, and waits until its servers
// were tried.
func start(t *testing.T, o options) *gateway {
	t.Helper()
	g := &gateway{t: t, log: &logBuffer{}, gatherer: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.registry = registry.New(log)
	g.manager = upstream.NewManager(g.registry, upstream.Options{
		Log: log, Version: "1.2.3", DialTimeout: time.Second, RequestTimeout: 2 * time.Second,
		PingEvery: time.Minute, PingTimeout: time.Second, BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
	})
	g.keys = session.NewKeyring([32]byte{1})
	g.table = session.NewTable(session.Options{
		Keys: g.keys, Now: o.now, CloseBackend: g.closeBackend,
		Forgotten: func(id session.ID) { g.broker.Forgotten(id) },
	})
	rt := &router.Router{Sessions: g.table, Catalog: g.registry, BodyLimit: bodyLimit}
	m := metrics.New(g.gatherer, metrics.Gauges{
		Sessions: g.table.Len,
		Streams:  func() int { return g.broker.Streams() },
		Buffered: func() int64 { return g.broker.Buffered() },
	})
	opt := broker.Options{
		Router: rt, Sessions: g.table, Seals: g.keys, Upstreams: g.manager, Registry: g.registry, Settled: g.manager.Tried(),
		BodyLimit: bodyLimit, KeepAlive: time.Minute, Version: "1.2.3", Metrics: m, Calls: calls.NewRecorder(g.gatherer, nil), Log: log,
	}
	if o.broker != nil {
		o.broker(&opt)
	}
	g.broker = broker.New(opt)
	g.serve(o)
	t.Cleanup(func() {
		g.table.Close()
		g.manager.Close()
	})
	g.manager.Apply(o.servers)
	select {
	case <-g.manager.Tried():
	case <-time.After(wait):
		require.FailNow(t, "the servers were not tried", g.log.String())
	}
	return g
}

func (g *gateway) serve(o options) {
	ts := httptest.NewUnstartedServer(g.broker)
	if o.h2c {
		ts.Config.Protocols = new(http.Protocols)
		ts.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	if o.conn != nil {
		ts.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			o.conn(c.(*net.TCPConn))
			return ctx
		}
	}
	if o.server != nil {
		o.server(ts.Config)
	}
	ts.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(g.log, nil), slog.LevelError)
	ts.Start()
	g.url = ts.URL + mcptest.Path
	g.t.Cleanup(func() {
		g.broker.Close()
		ts.CloseClientConnections()
		ts.Close()
	})
}

// closeBackend is what the product does when a backend session is of no use.
func (g *gateway) closeBackend(server string, b *session.Backend) {
	if c, ok := g.manager.Client(server); ok {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Delete(ctx, upstream.Ref{ID: b.ID, Revision: b.Revision}) // the server may be dead
	}
}

// client returns a client with a session.
func (g *gateway) client() *mcptest.Client {
	g.t.Helper()
	c := g.stranger()
	c.Initialize()
	return c
}

// stranger returns a client without a session.
func (g *gateway) stranger() *mcptest.Client { return mcptest.NewClient(g.t, g.url) }

// h2c makes the client speak HTTP/2 without TLS; stream is how many bytes of a
// stream may wait for it.
func h2c(t *testing.T, c *mcptest.Client, stream int) {
	tr := &http.Transport{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: stream}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	c.HTTP = &http.Client{Transport: tr}
}

// metric returns the sum of the samples of name that have the labels, given as
// pairs.
func (g *gateway) metric(name string, labels ...string) float64 {
	families, err := g.gatherer.Gather()
	require.NoError(g.t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, want []string) bool {
	for i := 0; i+1 < len(want); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == want[i] && l.GetValue() == want[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// requests counts the requests with an outcome.
func (g *gateway) requests(method, way, outcome string) int {
	return int(g.metric("patchbay_requests_total", "method", method, "way", way, "outcome", outcome))
}

// counted waits until a request with the outcome was counted, which happens when
// its answer has gone out.
func (g *gateway) counted(method, way, outcome string) {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return g.requests(method, way, outcome) > 0 }, wait, 5*time.Millisecond,
		"%s by %s: %s was not counted", method, way, outcome)
}

// change makes a change of the tools' list, in a server that nobody watches.
func (g *gateway) change(n int) {
	g.registry.SetReady("by-hand", &registry.Catalog{Tools: []registry.Item{{
		Name: "t", Raw: []byte(`{"name":"t","description":"` + string(rune('a'+n%26)) + `","inputSchema":{"type":"object"}}`),
	}}}, registry.Facts{})
}

// byHand adds the server of change.
func (g *gateway) byHand() {
	g.registry.Add(config.Server{Name: "by-hand", URL: "http://127.0.0.1:1/mcp"})
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
