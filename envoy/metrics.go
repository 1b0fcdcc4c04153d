package envoy

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the figures of this package.
type Metrics struct {
	starts  prometheus.Counter
	deaths  prometheus.Counter
	streams prometheus.Gauge
	nacks   *prometheus.CounterVec
}

// NewMetrics makes the figures and registers them; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		starts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_envoy_starts_total", Help: "Starts of the supervised Envoy.",
		}),
		deaths: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "patchbay_envoy_deaths_total", Help: "Ends of the supervised Envoy that nobody asked for.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "patchbay_xds_connected", Help: "Envoys that are connected to xDS.",
		}),
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_xds_rejected_total", Help: "Configurations that an Envoy refused, by type.",
		}, []string{"type"}),
	}
	if reg != nil {
		reg.MustRegister(m.starts, m.deaths, m.streams, m.nacks)
	}
	return m
}
