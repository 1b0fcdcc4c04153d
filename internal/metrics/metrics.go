// Package metrics holds the counters of the request path, which ext_proc and the
// broker share: a request is counted once, by whichever of them ended it or sent
// it on its direct way. Labels are bounded: methods by mcp.MethodLabel, ways and
// outcomes by their types.
//
// All methods are safe for concurrent use.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the request path.
type Metrics struct {
	requests *prometheus.CounterVec
	decision prometheus.Histogram
	dropped  prometheus.Counter
	panics   prometheus.Counter
	rescues  *prometheus.CounterVec
}

// Gauges are read when the metrics are scraped.
type Gauges struct {
	// Sessions is how many sessions are in memory, Streams how many GET streams
	// are open.
	Sessions, Streams func() int
	// Buffered is how many bytes are held for large request bodies.
	Buffered func() int64
}

// New registers the metrics with reg.
func New(reg prometheus.Registerer, g Gauges) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_requests_total",
			Help: "Requests by JSON-RPC method, way (direct, reply, broker, recovered) and outcome.",
		}, []string{"method", "way", "outcome"}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "patchbay_decision_seconds",
			Help:    "Time that one routing decision took, without any I/O.",
			Buckets: prometheus.ExponentialBuckets(500e-9, 2, 16),
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_streams_dropped_total",
			Help: "GET streams that were closed because their client did not read.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_panics_total",
			Help: "Panics in a request; each ended that request alone.",
		}),
		rescues: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_rescues_total",
			Help: "Direct event streams that broke off, by where their client was told: its GET stream, kept for the next one, or lost.",
		}, []string{"to"}),
	}
	reg.MustRegister(m.requests, m.decision, m.dropped, m.panics, m.rescues,
		gauge("patchbay_sessions", "Client sessions in memory.", g.Sessions),
		gauge("patchbay_streams", "Open GET streams of clients.", g.Streams),
		gauge("patchbay_buffered_bytes", "Memory set aside for large request bodies.", g.Buffered))
	return m
}

func gauge[N int | int64](name, help string, f func() N) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
}

// Request counts a request. A decision of 0 was none (a recovered call).
func (m *Metrics) Request(method, way, outcome string, decision time.Duration) {
	m.requests.WithLabelValues(method, way, outcome).Inc()
	if decision > 0 {
		m.decision.Observe(decision.Seconds())
	}
}

// StreamDropped counts a GET stream whose client did not read.
func (m *Metrics) StreamDropped() { m.dropped.Inc() }

// Rescue counts an error of a direct call that broke off.
func (m *Metrics) Rescue(to string) { m.rescues.WithLabelValues(to).Inc() }

// Panic counts a panic in a request.
func (m *Metrics) Panic() { m.panics.Inc() }
