package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/metrics"
)

// samples are the values by name and labels; of a histogram its count.
func samples(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		assert.NotEmpty(t, f.GetHelp())
		for _, m := range f.GetMetric() {
			name := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				name = append(name, l.GetValue())
			}
			out[strings.Join(name, " ")] = value(f.GetType(), m)
		}
	}
	return out
}

func value(typ dto.MetricType, m *dto.Metric) float64 {
	switch typ {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_GAUGE:
		return m.GetGauge().GetValue()
	default:
		return float64(m.GetHistogram().GetSampleCount())
	}
}

func TestCountsAndGauges(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	sessions := 3
	m := metrics.New(reg, metrics.Gauges{Sessions: func() int { return sessions }, Streams: func() int { return 1 }, Buffered: func() int64 { return 2 }})
	m.Request("tools/call", "direct", "routed", 1500*time.Nanosecond)
	m.Request("tools/call", "direct", "routed", 3*time.Microsecond)
	m.Request("tools/call", "recovered", "ok", 0) // no decision
	m.StreamDropped()
	m.Panic()
	sessions = 4 // gauges are read when they are asked for
	got := samples(t, reg)
	for name, want := range map[string]float64{
		// In the order of the labels' names: method, outcome, way.
		"patchbay_requests_total tools/call routed direct": 2,
		"patchbay_requests_total tools/call ok recovered":  1,
		"patchbay_decision_seconds":                        2,
		"patchbay_sessions":                                4,
		"patchbay_streams":                                 1,
		"patchbay_streams_dropped_total":                   1,
		"patchbay_panics_total":                            1,
	} {
		assert.InDelta(t, want, got[name], 0, name)
	}
}
