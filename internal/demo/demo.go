// Package demo holds the two MCP servers that the gateway brings along, so that
// it can be tried without any other: a clock with tools; notes with tools,
// resources and prompts, which changes its tool list when told to.
//
// They are real servers, made with the official SDK, that listen on loopback
// ports of their own: to the gateway they are servers like all others, with
// sessions, event streams and notifications.
//
// Flow: [Start] listens and serves both until [Demo.Close] or the end of its
// context. One set of notes is shared by all sessions and is lost at the end;
// what it may hold is bounded.
//
// Concurrency: the SDK calls tools from many goroutines; the notes have a lock,
// the clock no state.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	path = "/mcp"
	// sessionTimeout is after how long without a request a session is freed.
	sessionTimeout = time.Hour
	// maxBody bounds a request, in bytes.
	maxBody = 256 << 10
	// stopTimeout bounds how long Close waits for calls under way.
	stopTimeout = 2 * time.Second
)

// Demo is the running pair of servers.
type Demo struct {
	// Clock and Notes are the URLs of the MCP endpoints.
	Clock, Notes string

	log     *slog.Logger
	servers []*server
	stopped func() // ends both, once
	unbind  func() bool
}

type server struct {
	mcp  *mcp.Server
	http *http.Server
	done chan struct{} // closed when serving has ended
}

// Start serves both on free ports of 127.0.0.1 until ctx ends or Close is
// called. It fails when it cannot listen.
func Start(ctx context.Context, log *slog.Logger) (*Demo, error) {
	d := &Demo{log: log}
	d.stopped = sync.OnceFunc(d.stop)
	var err error
	if d.Clock, err = d.serve(ctx, newClock(time.Now)); err == nil {
		d.Notes, err = d.serve(ctx, newNotes(time.Now))
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("demo servers: %w", err)
	}
	d.unbind = context.AfterFunc(ctx, d.stopped)
	return d, nil
}

func (d *Demo) serve(ctx context.Context, m *mcp.Server) (url string, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, &mcp.StreamableHTTPOptions{
		SessionTimeout:      sessionTimeout,
		MaxRequestBodyBytes: maxBody,
	})
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	s := &server{
		mcp:  m,
		http: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		done: make(chan struct{}),
	}
	d.servers = append(d.servers, s)
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("a demo server has ended", "error", err)
		}
	}()
	return "http://" + l.Addr().String() + path, nil
}

// Close ends both servers: their sessions and streams are closed, calls under
// way get 2 s. It is safe to call it more than once, from any goroutine.
func (d *Demo) Close() {
	if d.unbind != nil {
		d.unbind()
	}
	d.stopped()
}

func (d *Demo) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range d.servers {
		all.Go(func() { s.stop(ctx, d.log) })
	}
	all.Wait()
}

func (s *server) stop(ctx context.Context, log *slog.Logger) {
	// Shutdown waits for open streams, and those end with their sessions.
	ended := make(chan error, 1)
	go func() { ended <- s.http.Shutdown(ctx) }()
	for session := range s.mcp.Sessions() {
		if err := session.Close(); err != nil {
			log.Debug("demo server: end of a session", "error", err)
		}
	}
	if err := <-ended; err != nil {
		log.Debug("demo server: calls were cut off", "error", err)
		_ = s.http.Close() // it cuts what is left; there is no more to do
	}
	<-s.done
}
