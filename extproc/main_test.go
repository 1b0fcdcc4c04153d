package extproc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"patchbay.dev/extproc"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	wait        = 10 * time.Second
	bodyLimit   = 1 << 20
	bufferLimit = 3 << 20
)

// counts are the metrics that a test looks at.
type counts struct {
	mu       sync.Mutex
	requests []string // guarded by mu; "method way outcome"
	panics   int      // guarded by mu
}

func (c *counts) Request(method, way, outcome string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, method+" "+way+" "+outcome)
}

func (c *counts) Panic() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panics++
}

func (c *counts) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.requests
	c.requests = nil
	return out
}

// fixture is an external processor with all its real parts on a Unix socket, and
// a connection to it.
type fixture struct {
	t        testing.TB
	server   *extproc.Server
	registry *registry.Registry
	table    *session.Table
	keys     *session.Keyring
	metrics  *counts
	log      *bytes.Buffer // read it when all streams have ended
	conn     *grpc.ClientConn
	statuses chan error // how each stream ended, as the server saw it
}

func newFixture(tb testing.TB, change ...func(*extproc.Server)) *fixture {
	tb.Helper()
	f := &fixture{t: tb, metrics: &counts{}, log: &bytes.Buffer{}, statuses: make(chan error, 1<<16)}
	f.registry = registry.New(slog.New(slog.DiscardHandler))
	f.registry.SetRoutable(func(string) bool { return true })
	f.keys = session.NewKeyring([32]byte{1})
	f.table = session.NewTable(session.Options{Keys: f.keys})
	tb.Cleanup(f.table.Close)
	settled := make(chan struct{})
	close(settled)
	f.server = &extproc.Server{
		Router:  &router.Router{Sessions: f.table, Catalog: f.registry, BodyLimit: bodyLimit},
		Seal:    func(plain []byte) string { return f.keys.Seal(session.PurposeRecover, plain) },
		Settled: settled, BodyLimit: bodyLimit, BufferLimit: bufferLimit,
		Metrics: f.metrics, Log: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, c := range change {
		c(f.server)
	}
	f.serve()
	return f
}

func (f *fixture) serve() {
	path := filepath.Join(f.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(f.t, err)
	s := grpc.NewServer(extproc.Codec(), grpc.StreamInterceptor(
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			err := handler(srv, ss)
			select {
			case f.statuses <- err:
			default: // a benchmark does not look
			}
			return err
		}))
	extprocv3.RegisterExternalProcessorServer(s, f.server)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // it ends by Stop
	f.conn, err = grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		_ = f.conn.Close()
		s.Stop()
		<-done
	})
}

// ready adds a server with a tool, and returns the token of a session that has
// its backend session with it.
func (f *fixture) ready(s config.Server, facts registry.Facts, b session.Backend) (token string) {
	f.registry.Add(s)
	f.registry.SetReady(s.Name, &registry.Catalog{
		Tools: []registry.Item{{Name: "echo", Raw: []byte(`{"name":"echo","description":"d","inputSchema":{"type":"object"}}`)}},
	}, facts)
	srv, ok := f.registry.Snapshot().Server(s.Name)
	require.True(f.t, ok)
	sess, token := f.table.New(session.Claims{Revision: 3})
	_, err := sess.OpenBackend(context.Background(), s.Name, srv.Cluster, nil, func(context.Context) (*session.Backend, error) {
		b.Epoch = srv.Cluster
		return &b, nil
	})
	require.NoError(f.t, err)
	return token
}

func plain() (config.Server, registry.Facts, session.Backend) {
	return config.Server{Name: "s", URL: "http://127.0.0.1:1/mcp"}, registry.Facts{LostStatus: 404},
		session.Backend{ID: "backend", Revision: "2025-11-25"}
}

// stream is Envoy's end of one request.
type stream struct {
	f *fixture
	extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func (f *fixture) stream() *stream {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	f.t.Cleanup(cancel)
	c, err := extprocv3.NewExternalProcessorClient(f.conn).Process(ctx)
	require.NoError(f.t, err)
	return &stream{f, c, cancel}
}

// headers sends request headers; the pairs come on top of those that every
// client sends.
func (s *stream) headers(end bool, pairs ...string) {
	h := &corev3.HeaderMap{}
	pairs = append([]string{
		":method", "POST", ":path", "/mcp", "user-agent", "node", "mcp-protocol-version", "2025-11-25",
		"content-type", "application/json", "accept", "application/json, text/event-stream",
	}, pairs...)
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: h, EndOfStream: end},
	}})
}

func (s *stream) body(chunk string, end bool) {
	s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(chunk), EndOfStream: end},
	}})
}

func (s *stream) send(m *extprocv3.ProcessingRequest) {
	s.f.t.Helper()
	require.NoError(s.f.t, s.Send(m))
}

// immediate receives the immediate response.
func (s *stream) immediate() *extprocv3.ImmediateResponse {
	s.f.t.Helper()
	m, err := s.Recv()
	require.NoError(s.f.t, err)
	r := m.GetImmediateResponse()
	require.NotNil(s.f.t, r, "%v", m)
	return r
}

// forwarded receives the answer to the headers and the whole body.
func (s *stream) forwarded() (headers *extprocv3.ProcessingResponse, body []byte, chunks []int) {
	s.f.t.Helper()
	headers, err := s.Recv()
	require.NoError(s.f.t, err)
	require.NotNil(s.f.t, headers.GetRequestHeaders(), "%v", headers)
	for {
		m, err := s.Recv()
		require.NoError(s.f.t, err)
		c := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		if c == nil {
			require.NotNil(s.f.t, m.GetRequestTrailers(), "%v", m)
			return headers, body, chunks
		}
		body = append(body, c.GetBody()...)
		chunks = append(chunks, len(c.GetBody()))
		if c.GetEndOfStream() {
			return headers, body, chunks
		}
	}
}

// ended waits for the end of the stream as the server saw it.
func (f *fixture) ended() error {
	f.t.Helper()
	select {
	case err := <-f.statuses:
		return err
	case <-time.After(wait):
		require.FailNow(f.t, "the stream did not end")
		return nil
	}
}
