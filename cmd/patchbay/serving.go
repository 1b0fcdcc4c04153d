package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"patchbay.dev/broker"
	"patchbay.dev/envoy"
	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/tune"
	"patchbay.dev/registry"
)

// serveGRPC serves on l until ctx is done.
func serveGRPC(ctx context.Context, l net.Listener, register func(grpc.ServiceRegistrar), options ...grpc.ServerOption) error {
	s := grpc.NewServer(append(tune.GRPC(), options...)...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("gRPC on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Streams that are open now end with an error, which fails closed.
	s.Stop()
	if err := <-done; err != nil {
		return fmt.Errorf("gRPC on %s: %w", l.Addr(), err)
	}
	return nil
}

// registerExtProc registers what Envoy asks on the path of a call: ext_proc, and
// the access log service.
func (g *gateway) registerExtProc(s grpc.ServiceRegistrar) {
	extprocv3.RegisterExternalProcessorServer(s, g.extproc)
	log := &envoy.AccessLog{Ended: func(e *calls.Ended) {
		g.calls.Record(e)
		g.broker.DirectEnded(e)
	}}
	log.Register(s)
}

// newRecorder opens the log of calls, if one is wanted.
func newRecorder(cfg config.Calls, reg prometheus.Registerer) (*calls.Recorder, io.Closer, error) {
	if cfg.Log == "" {
		return calls.NewRecorder(reg, nil), io.NopCloser(nil), nil
	}
	if cfg.Log == "-" {
		return calls.NewRecorder(reg, slog.New(slog.NewJSONHandler(os.Stderr, nil))), io.NopCloser(nil), nil
	}
	out, err := os.OpenFile(cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("calls.log: %w", err)
	}
	return calls.NewRecorder(reg, slog.New(slog.NewJSONHandler(out, nil))), out, nil
}

// serveBroker serves HTTP/1.1 and, without TLS, HTTP/2, until ctx is done.
func (g *gateway) serveBroker(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler:           broker.Browsers(g.cfg.Origins, g.broker),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute,
		IdleTimeout:       15 * time.Minute,
		MaxHeaderBytes:    96 << 10,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 4096},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("broker on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	g.broker.Close()
	end, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := s.Shutdown(end); err != nil {
		_ = s.Close() // what still runs has had its time
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("broker on %s: %w", l.Addr(), err)
	}
	return nil
}

// upstreams are the servers as Envoy needs them.
func upstreams(s *registry.Snapshot) ([]envoy.Upstream, error) {
	var out []envoy.Upstream
	for _, srv := range s.Servers() {
		u, err := url.Parse(srv.Config.URL)
		if err != nil { // the configuration was checked
			return nil, fmt.Errorf("server %s: %w", srv.Config.Name, err)
		}
		out = append(out, envoy.Upstream{Cluster: srv.Cluster, URL: u, TLS: srv.Config.TLS})
	}
	return out, nil
}
