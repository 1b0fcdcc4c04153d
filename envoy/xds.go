package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
)

// removeAfter is how long the cluster of a removed server stays: calls that
// were decided before the removal still find it.
const removeAfter = 5 * time.Second

// XDS serves clusters and routes to Envoys over delta ADS and knows which
// clusters they have. Its methods may be called concurrently.
type XDS struct {
	log      *slog.Logger
	metrics  *Metrics
	clusters *cachev3.LinearCache
	routes   *cachev3.LinearCache
	server   deltav3.Server
	cancel   context.CancelFunc
	routable atomic.Pointer[map[string]struct{}]
	// removeAfter is constant but for tests.
	removeAfter time.Duration

	mu       sync.Mutex
	wanted   map[string]versions // by the name that routes use
	served   map[string]string   // by cluster's name: the version in the cache
	removals map[string]*time.Timer
	streams  map[int64]*ackStream
	onChange []func()
	known    int // of connected Envoys, when onChange was last called
	closed   bool
}

// versions are those that Envoy must have acknowledged of one server.
type versions struct{ composite, backend string }

// NewXDS returns an xDS server without any resource. A nil log is silent, nil
// metrics count nowhere. Close it after the gRPC server has stopped.
func NewXDS(log *slog.Logger, metrics *Metrics) *XDS {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &XDS{
		log: log, metrics: metrics, cancel: cancel, removeAfter: removeAfter,
		clusters: cachev3.NewLinearCache(resourcev3.ClusterType),
		routes:   cachev3.NewLinearCache(resourcev3.RouteType),
		wanted:   map[string]versions{},
		served:   map[string]string{},
		removals: map[string]*time.Timer{},
		streams:  map[int64]*ackStream{},
	}
	x.routable.Store(&map[string]struct{}{})
	mux := &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cachev3.Cache{resourcev3.ClusterType: x.clusters, resourcev3.RouteType: x.routes},
	}
	x.server = deltav3.NewServer(ctx, mux, (*acks)(x))
	return x
}

// Register adds the service to s.
func (x *XDS) Register(s grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, &adsService{delta: x.server})
}

// Close ends all streams and timers.
func (x *XDS) Close() {
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, t := range x.removals {
		t.Stop()
	}
	clear(x.removals)
}

// SetRoutes replaces the route configuration; the same one again changes
// nothing.
func (x *XDS) SetRoutes(rc *routev3.RouteConfiguration) error {
	if err := x.routes.UpdateResource(rc.GetName(), rc); err != nil {
		return fmt.Errorf("xds routes: %w", err)
	}
	return nil
}

// SetUpstreams replaces the servers. What did not change is not sent again. A
// removed server is not Routable from now on; its clusters go a few seconds
// later. One that cannot be configured is left out, and named in the error,
// while the others are set.
func (x *XDS) SetUpstreams(upstreams []Upstream) error {
	x.mu.Lock()
	wanted, changed, errs := x.buildLocked(upstreams)
	for name := range x.wanted {
		if _, ok := wanted[name]; !ok {
			x.removeLaterLocked(name)
		}
	}
	x.wanted = wanted
	var err error
	if len(changed) > 0 {
		err = x.clusters.UpdateResources(changed, nil)
	}
	notify := x.updateLocked()
	x.mu.Unlock()
	notify()
	return errors.Join(append(errs, err)...)
}

// buildLocked makes the clusters of all upstreams, says which ones differ from
// what is served, and enters these as served.
func (x *XDS) buildLocked(upstreams []Upstream) (wanted map[string]versions, changed map[string]types.Resource, errs []error) {
	wanted = make(map[string]versions, len(upstreams))
	changed = map[string]types.Resource{}
	for i := range upstreams {
		u := &upstreams[i]
		if _, twice := wanted[u.Cluster]; twice || u.Cluster == "" || strings.HasSuffix(u.Cluster, backendSuffix) {
			errs = append(errs, fmt.Errorf("cluster %q: the name is taken or not allowed", u.Cluster))
			continue
		}
		pair, err := u.clusters()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var v [2]string
		for i, c := range pair {
			if v[i], err = version(c); err != nil {
				errs = append(errs, err)
				break
			}
		}
		if err != nil {
			continue
		}
		wanted[u.Cluster] = versions{backend: v[0], composite: v[1]}
		for i, c := range pair {
			if x.served[c.GetName()] != v[i] {
				x.served[c.GetName()] = v[i]
				changed[c.GetName()] = c
			}
		}
	}
	return wanted, changed, errs
}

// version is what the cache says on the wire: a hash of the bytes, so that an
// Envoy that reconnects, also to a restarted gateway, is sent only what it does
// not have.
func version(c *clusterv3.Cluster) (string, error) {
	b, err := cachev3.MarshalResource(c)
	if err != nil {
		return "", fmt.Errorf("cluster %q: %w", c.GetName(), err)
	}
	return cachev3.HashResource(b), nil
}

func (x *XDS) removeLaterLocked(name string) {
	if x.removals[name] != nil || x.closed {
		return
	}
	x.removals[name] = time.AfterFunc(x.removeAfter, func() { x.remove(name) })
}

func (x *XDS) remove(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.removals, name)
	if _, again := x.wanted[name]; again || x.closed {
		return
	}
	gone := []string{name, name + backendSuffix}
	for _, n := range gone {
		delete(x.served, n)
	}
	if err := x.clusters.UpdateResources(nil, gone); err != nil {
		x.log.Error("cannot remove a cluster", "cluster", name, "error", err)
	}
}

// Routable tells whether calls may be sent to the cluster: at least one Envoy
// is connected, and every connected one has acknowledged it as it is now. It
// takes no lock.
func (x *XDS) Routable(cluster string) bool {
	_, ok := (*x.routable.Load())[cluster]
	return ok
}

// Connected is the number of connected Envoys.
func (x *XDS) Connected() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.connectedLocked()
}

// OnChange has f called whenever Routable or Connected may answer differently
// than before. f must not block; it may call methods of x.
func (x *XDS) OnChange(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.onChange = append(x.onChange, f)
}

func (x *XDS) connectedLocked() int {
	n := 0
	for _, s := range x.streams {
		if s.clusters {
			n++
		}
	}
	return n
}

// updateLocked works out what is routable. The caller calls the result after
// unlocking.
func (x *XDS) updateLocked() (notify func()) {
	connected := x.connectedLocked()
	x.metrics.streams.Set(float64(connected))
	routable := map[string]struct{}{}
	for name, v := range x.wanted {
		if connected > 0 && x.ackedLocked(name, v) {
			routable[name] = struct{}{}
		}
	}
	same := maps.Equal(routable, *x.routable.Swap(&routable)) && connected == x.known
	x.known = connected
	if same {
		return func() {}
	}
	callbacks := x.onChange[:len(x.onChange):len(x.onChange)]
	return func() {
		for _, f := range callbacks {
			f()
		}
	}
}

func (x *XDS) ackedLocked(name string, v versions) bool {
	for _, s := range x.streams {
		if s.clusters && (s.acked[name] != v.composite || s.acked[name+backendSuffix] != v.backend) {
			return false
		}
	}
	return true
}
