package envoy

import (
	"context"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits on what is kept for those who connect to xDS.
const (
	maxStreams  = 256 // Envoys; each has one stream
	maxUnacked  = 64  // responses on the way to one Envoy
	maxNackText = 2 << 10
)

// adsService serves delta ADS and nothing else.
type adsService struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta deltav3.Server
}

func (s *adsService) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.delta.DeltaStreamHandler(stream, resourcev3.AnyType)
}

// ackStream is what one Envoy has of the clusters. XDS.mu guards it.
type ackStream struct {
	// clusters is set once the Envoy has asked for clusters: until then it
	// routes nothing.
	clusters bool
	// acked is the version that the Envoy runs with, by cluster.
	acked map[string]string
	// sent is what was sent and not yet answered, by nonce; a version "" is a
	// removal.
	sent map[string]map[string]string
}

// acks follows the protocol on all streams. Its methods are called by the
// streams' goroutines.
type acks XDS

var _ deltav3.Callbacks = (*acks)(nil)

func (a *acks) OnDeltaStreamOpen(_ context.Context, id int64, _ string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) >= maxStreams {
		return status.Errorf(codes.ResourceExhausted, "more than %d Envoys", maxStreams)
	}
	a.streams[id] = &ackStream{acked: map[string]string{}, sent: map[string]map[string]string{}}
	return nil
}

func (a *acks) OnDeltaStreamClosed(id int64, node *corev3.Node) {
	x := (*XDS)(a)
	x.mu.Lock()
	s := x.streams[id]
	delete(x.streams, id)
	notify := x.updateLocked()
	x.mu.Unlock()
	if s != nil {
		x.log.Info("envoy left xds", "node", node.GetId())
	}
	notify()
}

func (a *acks) OnStreamDeltaResponse(id int64, _ *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	if resp.GetTypeUrl() != resourcev3.ClusterType {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.streams[id]
	if s == nil {
		return
	}
	if len(s.sent) >= maxUnacked {
		// An Envoy that answers nothing keeps its clusters from being routable,
		// which is right; only the memory is bounded.
		clear(s.sent)
	}
	sent := make(map[string]string, len(resp.GetResources())+len(resp.GetRemovedResources()))
	for _, r := range resp.GetResources() {
		sent[r.GetName()] = r.GetVersion()
	}
	for _, name := range resp.GetRemovedResources() {
		sent[name] = ""
	}
	s.sent[resp.GetNonce()] = sent
}

func (a *acks) OnStreamDeltaRequest(id int64, req *discoveryv3.DeltaDiscoveryRequest) error {
	x := (*XDS)(a)
	if e := req.GetErrorDetail(); e != nil {
		x.metrics.nacks.WithLabelValues(nackType(req.GetTypeUrl())).Inc()
		x.log.Error("envoy refused a configuration", "type", req.GetTypeUrl(), "error", bounded(e.GetMessage(), maxNackText))
	}
	if req.GetTypeUrl() != resourcev3.ClusterType {
		return nil
	}
	x.mu.Lock()
	notify := func() {}
	if s := x.streams[id]; s != nil {
		if !s.clusters {
			x.log.Info("envoy joined xds", "node", req.GetNode().GetId())
		}
		s.request(req)
		notify = x.updateLocked()
	}
	x.mu.Unlock()
	notify()
	return nil
}

// request takes in a request for clusters: the first one tells what a
// reconnecting Envoy has, the others answer a response.
func (s *ackStream) request(req *discoveryv3.DeltaDiscoveryRequest) {
	if !s.clusters {
		s.clusters = true
		for name, version := range req.GetInitialResourceVersions() {
			s.acked[name] = version
		}
	}
	sent := s.sent[req.GetResponseNonce()]
	delete(s.sent, req.GetResponseNonce())
	for name, version := range sent {
		switch {
		case req.GetErrorDetail() != nil && !acceptedDespite(name, req.GetErrorDetail().GetMessage()):
		case version == "":
			delete(s.acked, name)
		default:
			s.acked[name] = version
		}
	}
}

// partly begins Envoy's error when it took the clusters of a response but for
// those that it names ("... cluster(s) a: reason, b: reason").
const partly = "Error adding/updating cluster(s) "

// acceptedDespite tells whether Envoy took the cluster although it refused the
// response with the error nack.
func acceptedDespite(name, nack string) bool {
	return strings.HasPrefix(nack, partly) && !strings.Contains(nack, " "+name+": ")
}

func nackType(typeURL string) string {
	switch typeURL {
	case resourcev3.ClusterType:
		return "cluster"
	case resourcev3.RouteType:
		return "route"
	}
	return "other"
}

func bounded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
