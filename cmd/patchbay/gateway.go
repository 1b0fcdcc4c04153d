package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"patchbay.dev/broker"
	"patchbay.dev/envoy"
	"patchbay.dev/extproc"
	"patchbay.dev/internal/admin"
	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/metrics"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
	"patchbay.dev/registry/store"
	"patchbay.dev/router"
)

const (
	// settleTime is how long requests wait at the start for the first answers of
	// the servers.
	settleTime = 5 * time.Second
	// bufferLimit is the most that all request bodies in ext_proc may hold.
	bufferLimit = 512 << 20
	// keepAlive is the time between comments on a quiet stream: well inside the
	// 60 s after which many proxies close one.
	keepAlive = 25 * time.Second
	// closeTime bounds an orderly end.
	closeTime = 5 * time.Second
)

// gateway is the parts of one running Patchbay, without Envoy.
type gateway struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *registry.Registry
	table    *session.Table
	stones   *session.Tombstones
	manager  *upstream.Manager
	catalogs *store.Store
	broker   *broker.Broker
	extproc  *extproc.Server
	xds      *envoy.XDS
	metrics  *metrics.Metrics
	envoy    *envoy.Metrics
	calls    *calls.Recorder
	callLog  io.Closer
	gatherer *prometheus.Registry
	settled  chan struct{}
}

// newGateway puts the parts together. It starts the sweeper of the sessions,
// nothing else; close ends it.
func newGateway(cfg *config.Config, log *slog.Logger) (*gateway, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Sessions.KeyFile), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w (choose another with --state-dir)", err)
	}
	keys, err := session.LoadKeyring(cfg.Sessions.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("session keys: %w", err)
	}
	stones, err := session.OpenTombstones(cfg.Sessions.KeyFile+".ended", nil)
	if err != nil {
		return nil, fmt.Errorf("ended sessions: %w", err)
	}
	g := &gateway{cfg: cfg, log: log, stones: stones, settled: make(chan struct{}), gatherer: prometheus.NewRegistry()}
	g.registry = registry.New(log)
	if g.catalogs, err = store.New(filepath.Join(cfg.StateDir, "catalogs"), g.registry, log); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	g.manager = upstream.NewManager(g.registry, upstream.Options{
		Log: log, Version: version(),
		Updated: func(server, uri string, message []byte) { g.broker.Updated(server, uri, message) },
	})
	g.table = session.NewTable(session.Options{
		Keys: keys, Tombstones: stones,
		IdleTimeout:  time.Duration(cfg.Sessions.IdleTimeout),
		Lifetime:     time.Duration(cfg.Sessions.Lifetime),
		Marked:       uint32(mcp.CapAsks),
		Mark:         private.BrokerSession,
		CloseBackend: g.closeBackend,
		Forgotten:    func(id session.ID) { g.broker.Forgotten(id) },
	})
	g.metrics = metrics.New(g.gatherer, metrics.Gauges{
		Sessions: g.table.Len,
		Streams:  func() int { return g.broker.Streams() },
		Buffered: func() int64 { return g.extproc.Buffered() + g.broker.Buffered() },
	})
	if g.calls, g.callLog, err = newRecorder(cfg.Calls, g.gatherer); err != nil {
		return nil, err
	}
	g.gatherer.MustRegister(admin.NewCollector(g.registry),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g.envoy = envoy.NewMetrics(g.gatherer)
	g.xds = envoy.NewXDS(log, g.envoy)
	rt := &router.Router{
		Sessions: g.table, Catalog: g.registry, BodyLimit: cfg.BodyLimit,
		Origins: cfg.Origins, PageSize: cfg.PageSize, Seals: keys,
	}
	g.extproc = &extproc.Server{
		Router: rt, Settled: g.settled, BodyLimit: cfg.BodyLimit, BufferLimit: bufferLimit, Metrics: g.metrics, Log: log,
		Seal: func(plain []byte) string { return keys.Seal(session.PurposeRecover, plain) },
	}
	g.broker = broker.New(broker.Options{
		Router: rt, Sessions: g.table, Seals: keys, Upstreams: g.manager, Registry: g.registry, Settled: g.settled,
		BodyLimit: cfg.BodyLimit, KeepAlive: keepAlive, Version: version(), Metrics: g.metrics, Calls: g.calls, Log: log,
	})
	return g, nil
}

// closeBackend ends a backend session that no client session needs any more.
func (g *gateway) closeBackend(server string, b *session.Backend) {
	client, ok := g.manager.ClientAt(server, b.Epoch)
	if !ok || b.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := client.Delete(ctx, upstream.Ref{ID: b.ID, Revision: b.Revision, Address: b.Address}); err != nil {
		g.log.Debug("backend session not ended", "server", server, "error", err)
	}
}

// endpoints are the listeners of a gateway.
type endpoints struct{ extproc, broker, xds, admin net.Listener }

func (e *endpoints) close() {
	for _, l := range []net.Listener{e.extproc, e.broker, e.xds, e.admin} {
		if l != nil {
			_ = l.Close() // it may be closed already
		}
	}
}

// run serves until ctx is done, then ends in order: streams first, because they
// hold up everything else, the servers last.
func (g *gateway) run(ctx context.Context, on endpoints, more ...func(context.Context) error) error {
	if err := g.watch(); err != nil {
		return err
	}
	grp, ctx := errgroup.WithContext(ctx)
	grp.Go(func() error { return serveGRPC(ctx, on.extproc, g.registerExtProc, extproc.Codec()) })
	grp.Go(func() error { return serveGRPC(ctx, on.xds, g.xds.Register) })
	grp.Go(func() error { return g.serveBroker(ctx, on.broker) })
	grp.Go(func() error { return admin.Serve(ctx, on.admin, g.adminHandler()) })
	grp.Go(func() error { g.settle(ctx); return nil })
	grp.Go(func() error { return g.catalogs.Run(ctx) })
	for _, f := range more {
		grp.Go(func() error { return f(ctx) })
	}
	err := grp.Wait()
	g.close()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (g *gateway) close() {
	g.broker.Close()
	g.table.Close()
	g.manager.Close()
	g.xds.Close()
	_ = g.callLog.Close() // whole lines were written without a buffer
	if err := g.stones.Close(); err != nil {
		g.log.Error("ended sessions", "error", err)
	}
}

// watch gives Envoy its routes and clusters and starts watching the servers.
func (g *gateway) watch() error {
	routes, err := envoy.Routes(envoy.RouteOptions{BodyLimit: g.cfg.BodyLimit, Origins: g.cfg.Origins})
	if err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	if err := g.xds.SetRoutes(routes); err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	for _, s := range g.cfg.Servers {
		g.registry.Add(s)
	}
	g.catalogs.Restore(g.cfg.Servers) // before the watchers say that a server is down
	g.registry.Subscribe(g.catalogs.Changed)
	if err := g.apply(g.cfg); err != nil {
		return err
	}
	g.registry.SetRoutable(g.xds.Routable)
	g.xds.OnChange(func() { g.registry.SetRoutable(g.xds.Routable) })
	return nil
}

// settle lets the waiting requests go.
func (g *gateway) settle(ctx context.Context) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-g.manager.Tried():
	case <-timer.C:
	case <-ctx.Done():
	}
	close(g.settled)
}

func (g *gateway) ready() (bool, string) {
	select {
	case <-g.settled:
		return true, ""
	default:
		return false, "waiting for the first answers of the servers"
	}
}

func (g *gateway) adminHandler() http.Handler {
	return admin.New(admin.Options{Gatherer: g.gatherer, Catalog: g.registry, Ready: g.ready, Log: g.log})
}
