package extproc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/router"
)

// Router decides on requests.
type Router interface {
	Decide(*router.Request) router.Decision
	TooLarge(userAgent string) router.Decision
	Stranger(*router.Request) *router.Decision
}

// Metrics takes what is counted here.
type Metrics interface {
	// Request counts a request that was decided; took is the decision alone.
	Request(method, way, outcome string, took time.Duration)
	// Panic counts a panic in a request.
	Panic()
}

// Server is the external processor. Its fields are not changed after the first
// stream.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	Router Router
	// Seal seals a recovery context.
	Seal func(plain []byte) string
	// Settled is closed when every backend was tried once, or the time for that
	// is over: until then the catalog is not known, and requests wait.
	Settled <-chan struct{}
	// BodyLimit is the largest body in bytes, BufferLimit the most that all
	// requests together may hold in memory.
	BodyLimit, BufferLimit int64
	Metrics                Metrics
	Log                    *slog.Logger

	buffered atomic.Int64
}

// Buffered is how many bytes of large bodies are held now.
func (s *Server) Buffered() int64 { return s.buffered.Load() }

type stream = extprocv3.ExternalProcessor_ProcessServer

// Process serves one request (ext_proc v3).
func (s *Server) Process(st stream) (err error) {
	x := &exchange{server: s, stream: st}
	defer func() {
		s.buffered.Add(-x.counted)
		if p := recover(); p != nil {
			err = s.panicked(x, p)
		}
	}()
	return x.run(st.Context())
}

// panicked ends the request alone, with an answer where one can still be sent.
func (s *Server) panicked(x *exchange, p any) error {
	s.Metrics.Panic()
	s.Log.Error("panic in a request", "panic", p, "stack", string(debug.Stack()))
	if x.answered {
		return status.Error(codes.Internal, "panic")
	}
	e := &mcp.Error{Code: mcp.CodeInternal, Reason: mcp.ReasonInternal, Status: 500, Message: "internal error in the gateway"}
	d := router.Decision{Method: mcp.MethodOther}
	d.Refuse(e, x.req.UserAgent, nil)
	if err := x.reply(&d); err != nil {
		return fmt.Errorf("after a panic: %w", err)
	}
	return nil
}

// exchange is one request on its way through a stream.
type exchange struct {
	server   *Server
	stream   stream
	req      router.Request
	length   int64 // the Content-Length header; 0 when there is none
	named    bool  // the request has an Mcp-Name header
	trailers bool  // the request ended with trailers, which want an answer
	answered bool  // something was sent
	counted  int64
}

func (x *exchange) run(ctx context.Context) error {
	switch verdict, err := x.read(); {
	case err != nil:
		return err
	case verdict != nil:
		return x.finish(verdict, 0)
	}
	select {
	case <-x.server.Settled:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	start := time.Now()
	d := x.server.Router.Decide(&x.req)
	return x.finish(&d, time.Since(start))
}

// finish counts the decision and carries it out.
func (x *exchange) finish(d *router.Decision, took time.Duration) error {
	switch d.Way {
	case router.Reply:
		x.server.Metrics.Request(d.Method, d.Way.String(), d.Outcome(), took)
		return x.reply(d)
	case router.Direct:
		x.server.Metrics.Request(d.Method, d.Way.String(), d.Outcome(), took)
		return x.direct(d)
	case router.Broker: // the broker counts it, with its outcome
	}
	return x.pass()
}
