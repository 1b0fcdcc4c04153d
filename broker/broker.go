package broker

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// Router decides on requests.
type Router interface {
	Decide(*router.Request) router.Decision
	TooLarge(userAgent string) router.Decision
	Stranger(*router.Request) *router.Decision
}

// Upstreams gives the way to the backends.
type Upstreams interface {
	// ClientAt returns the client of a server at the address that epoch names
	// (registry.Server.Cluster, session.Backend.Epoch), and false where the
	// server is gone or has moved.
	ClientAt(server, epoch string) (*upstream.Client, bool)
	// Suspect says that a call met a dead backend, so that its watcher looks.
	Suspect(server string)
	// Subscribe and Unsubscribe hold one subscription for all clients, by the
	// server's own URI.
	Subscribe(ctx context.Context, server, uri string) error
	Unsubscribe(ctx context.Context, server, uri string) error
}

// Sealer seals values and opens them; session.Keyring is one.
type Sealer interface {
	Seal(p session.Purpose, plain []byte) string
	AppendOpen(dst []byte, p session.Purpose, token string) ([]byte, error)
}

// Metrics takes what is counted here.
type Metrics interface {
	// Request counts a request; way is "reply", "broker" or "recovered".
	Request(method, way, outcome string, decision time.Duration)
	// StreamDropped counts a GET stream whose client did not read.
	StreamDropped()
	// Panic counts a panic in a request.
	Panic()
	// Rescue counts an error of a direct call that broke off, by where it went:
	// "stream", "kept" for the next stream, or "lost".
	Rescue(to string)
}

// Recorder takes in what came of calls; calls.Recorder is one.
type Recorder interface {
	Record(*calls.Ended)
}

// Options are the parts that a Broker is made of; all are needed but where a
// zero value is explained.
type Options struct {
	Router    Router
	Sessions  *session.Table
	Seals     Sealer
	Upstreams Upstreams
	Registry  *registry.Registry
	// Settled is closed when every backend was tried once, or the time for that
	// is over: until then requests wait.
	Settled <-chan struct{}
	// BodyLimit is the largest request body in bytes.
	BodyLimit int64
	// BufferLimit is the most that all large bodies together may hold in
	// memory; 0 is 512 MiB.
	BufferLimit int64
	// KeepAlive is the time between comments on a quiet stream.
	KeepAlive time.Duration
	// WriteTimeout is how long a client may take to read what is written to it
	// at once; 0 is 10 s.
	WriteTimeout time.Duration
	// AskTimeout is how long a backend's request waits for its client's answer;
	// 0 is 10 minutes: a person may have to read and decide.
	AskTimeout time.Duration
	// DetachTime is how long a call goes on whose client has left in the middle
	// of its event stream and does not come back for it; 0 is 5 minutes. The
	// server's own timeout bounds it too.
	DetachTime time.Duration
	// Version is what initialize says of the gateway.
	Version string
	Metrics Metrics
	Calls   Recorder
	Log     *slog.Logger
}

// Broker serves MCP over HTTP. It is safe for concurrent use.
type Broker struct {
	Options
	hub     *hub
	streams *callStreams
	rescues rescues
	asks    asks
	feeds   feeds

	subscriptions subscriptions
	background    sync.WaitGroup  // what nobody waits for but Close
	ctx           context.Context // done when the Broker is closed
	cancel        context.CancelFunc
	unsub         func()
	buffered      atomic.Int64 // bytes of large bodies
	telling       deliveries
}

// New returns a Broker; it tells its streams of the registry's changes until
// Close.
func New(o Options) *Broker {
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = writeTimeout
	}
	if o.BufferLimit <= 0 {
		o.BufferLimit = 512 << 20
	}
	if o.AskTimeout <= 0 {
		o.AskTimeout = askTimeout
	}
	if o.DetachTime <= 0 {
		o.DetachTime = detachTime
	}
	b := &Broker{Options: o, streams: newCallStreams(o.DetachTime)}
	b.hub = newHub(o.Metrics.StreamDropped, b.feeds.stop)
	b.asks.seal = func(plain []byte) string { return o.Seals.Seal(session.PurposeRequest, plain) }
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.unsub = o.Registry.Subscribe(b.changed)
	return b
}

// Close ends all GET streams: they would hold up an orderly shutdown for ever.
// Calls that go on without their client are given up. It waits for what runs in
// the background.
func (b *Broker) Close() {
	b.unsub()
	b.cancel()
	b.streams.close()
	b.background.Wait()
}

// changed draws the conclusions from a change of the registry; it does not
// block. What a server that is gone, or is another one now, still asks of
// clients is void.
func (b *Broker) changed(ev registry.Event) {
	b.hub.changed(ev)
	for _, srv := range ev.Before.Servers() {
		now, ok := ev.After.Server(srv.Config.Name)
		if !ok || now.Cluster != srv.Cluster {
			b.feeds.stopServer(srv.Config.Name)
			b.asks.dropServer(srv.Config.Name)
		}
	}
}

// Buffered is how many bytes are set aside for large bodies now.
func (b *Broker) Buffered() int64 { return b.buffered.Load() }

// Streams is how many GET streams are open.
func (b *Broker) Streams() int { return b.hub.len() }

// ServeHTTP implements http.Handler.
func (b *Broker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := b.response(rw)
	defer w.limit()
	defer b.contain(w, r)
	select {
	case <-b.Settled:
	case <-r.Context().Done():
		return
	}
	switch r.Method {
	case http.MethodPost:
		if rec, ok := b.recovery(r); ok {
			b.recover(w, r, rec)
			return
		}
		b.post(w, r)
	case http.MethodGet:
		b.stream(w, r)
	case http.MethodDelete:
		b.end(w, r)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		b.refuse(w, r, &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonHTTPMethod, Status: http.StatusMethodNotAllowed,
			Message: "method not allowed: use POST, GET or DELETE",
		}, nil)
	}
}

// contain ends a panic with its own request: with an error, or, where the
// answer has begun, by cutting it off.
func (b *Broker) contain(w *response, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint,err113 // net/http's sentinel for "cut the response off"
		panic(p)
	}
	b.Metrics.Panic()
	b.Log.Error("panic in a request", "panic", p, "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	b.refuse(w, r, errInternal(), nil)
}

func errInternal() *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInternal, Reason: mcp.ReasonInternal, Status: http.StatusInternalServerError,
		Message: "internal error in the gateway",
	}
}

// refuse answers with an error of the gateway's own.
func (b *Broker) refuse(w http.ResponseWriter, r *http.Request, e *mcp.Error, id []byte) {
	writeJSON(w, mcp.ClientStatus(r.UserAgent(), e.Status), e.Body(id))
}

func writeJSON(w http.ResponseWriter, status int, body ...[]byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	for _, part := range body {
		_, _ = w.Write(part) // the client is gone when this fails: nobody to tell
	}
}

// recovery opens the recovery context of a request that Envoy retries here. A
// value that does not open is as if it were not there: the request is then
// judged as any other.
func (b *Broker) recovery(r *http.Request) (router.Recovery, bool) {
	token := r.Header.Get(private.HeaderRecover)
	if token == "" {
		return router.Recovery{}, false
	}
	plain, err := b.Seals.AppendOpen(nil, session.PurposeRecover, token)
	if err != nil {
		return router.Recovery{}, false
	}
	rec, err := router.ParseRecovery(plain)
	return rec, err == nil
}
