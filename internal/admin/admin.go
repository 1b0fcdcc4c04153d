// Package admin is the gateway's second port, for operators and their tools:
// /metrics, /healthz, /readyz, and what is known of servers and tools as JSON
// (api.go). It decides nothing and changes nothing, and shows no secret: of a
// server's address the scheme and host, of its headers nothing.
//
// Flow: New makes the handler from what main gives it, Serve serves it until its
// context ends. The handler asks back at each request: the Gatherer for metrics,
// Ready for the state, the Catalog for a Snapshot.
//
// Concurrency: handlers run at the same time, so Ready and the Gatherer must be
// safe for that; the package itself keeps no mutable state.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits on requests to the admin port.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	stopTimeout    = 5 * time.Second
	maxHeaderBytes = 16 << 10
	maxScrapes     = 4
)

// Options is what the handler needs.
type Options struct {
	// Gatherer is what /metrics shows.
	Gatherer prometheus.Gatherer
	// Catalog is what /api/v1 shows.
	Catalog Catalog
	// Ready tells whether the gateway can serve, and if not, what is waited
	// for, in a few words.
	Ready func() (ready bool, waitingFor string)
	// Hosts are names, without port, by which the port may be asked for besides
	// IP addresses and localhost.
	Hosts []string
	// Log gets failures of a scrape.
	Log *slog.Logger
}

// endpoint is one page of the admin port.
type endpoint struct {
	path  string
	serve http.Handler
}

// endpoints are all pages; docs/operations.md lists them, as a test checks.
func endpoints(o Options) []endpoint {
	a := &api{catalog: o.Catalog}
	return []endpoint{
		{"/metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
			ErrorLog:            slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
			MaxRequestsInFlight: maxScrapes,
			Timeout:             writeTimeout / 2,
		})},
		{"/healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })},
		{"/readyz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if ready, waitingFor := o.Ready(); !ready {
				text(w, http.StatusServiceUnavailable, "not ready: "+waitingFor)
				return
			}
			text(w, http.StatusOK, "ok")
		})},
		{"/api/v1/servers", http.HandlerFunc(a.servers)},
		{"/api/v1/servers/{name}", http.HandlerFunc(a.server)},
		{"/api/v1/tools", http.HandlerFunc(a.tools)},
	}
}

// New returns the handler: /metrics (Prometheus text format), /healthz (200 as
// long as the process serves), /readyz (200, or 503 with what is waited for) and
// the JSON of /api/v1, which docs/operations.md describes. Anything else is 404.
// A Host header with another name is 403: a web page whose name was made to point
// here (DNS rebinding) must not read this port.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	var paths []string
	for _, e := range endpoints(o) {
		mux.Handle("GET "+e.path, e.serve)
		paths = append(paths, e.path)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusNotFound, "there is only GET "+strings.Join(paths, ", ")+" here")
	})
	hosts := map[string]bool{"localhost": true}
	for _, h := range o.Hosts {
		hosts[strings.ToLower(h)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hostAllowed(r.Host, hosts) {
			text(w, http.StatusForbidden, "ask for this port by an IP address or localhost")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// hostAllowed tells whether a Host header names no host that somebody else
// controls: an IP address or one of the names.
func hostAllowed(hostport string, names map[string]bool) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return names[strings.ToLower(host)]
}

func text(w http.ResponseWriter, status int, line string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprintln(w, line)
}

// Serve serves the handler on the listener until ctx ends, then lets requests
// finish for at most 5 s. It closes the listener, and returns nil after a stop
// by ctx.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving the admin port: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("stopping the admin port: %w", err)
	}
	return nil
}
