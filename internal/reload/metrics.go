package reload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics tell operators whether what is in the file is in force.
type metrics struct {
	reloads *prometheus.CounterVec
	ok      prometheus.Gauge
	last    prometheus.Gauge
}

// newMetrics registers the metrics; the start of the process counts as good.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "patchbay_config_reloads_total",
			Help: "Reloads of the configuration by result: success, or failure (the last good one stays).",
		}, []string{"result"}),
		ok: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "patchbay_config_last_reload_ok",
			Help: "1 when the configuration file as it is now is in force, 0 when it could not be loaded.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "patchbay_config_last_success_timestamp_seconds",
			Help: "When a configuration was last put into force, in Unix seconds.",
		}),
	}
	for _, result := range []string{"success", "failure"} {
		m.reloads.WithLabelValues(result)
	}
	m.ok.Set(1)
	m.last.Set(unix(time.Now()))
	reg.MustRegister(m.reloads, m.ok, m.last)
	return m
}

func (m *metrics) succeeded(now time.Time) {
	m.reloads.WithLabelValues("success").Inc()
	m.ok.Set(1)
	m.last.Set(unix(now))
}

func (m *metrics) refused() {
	m.reloads.WithLabelValues("failure").Inc()
	m.ok.Set(0)
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
