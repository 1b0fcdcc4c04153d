package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/envoy"
)

func gatewayBootstrap() ([]byte, error) {
	return envoy.Bootstrap(envoy.BootstrapConfig{ //nolint:wrapcheck // for tests
		Listen: "127.0.0.1:1", ExtProc: "127.0.0.1:2", Broker: "127.0.0.1:3", XDS: "127.0.0.1:4", NoAccessLog: true,
	})
}

func windows(us ...int) []sample {
	out := make([]sample, len(us))
	for i, v := range us {
		cpu := time.Duration(v) * time.Microsecond
		out[i] = sample{rate: float64(1000 - v), p50: cpu, p99: 2 * cpu, envoy: cpu / 2, own: cpu / 2}
	}
	return out
}

func TestRatioIsThatOfTheMinima(t *testing.T) {
	got := ratioOf(windows(300, 120, 200), windows(100, 200, 150))
	assert.InDelta(t, 1.2, got.minima, 1e-9)
	assert.InDelta(t, 0.6, got.low, 1e-9)
	assert.InDelta(t, 3.0, got.high, 1e-9)
}

func TestReport(t *testing.T) {
	call := callCase(64)
	r := &report{
		machine: "2 cores", command: "make bench", date: "today", rounds: 2, window: time.Second,
		cases: []*samples{{
			c: &call, shapes: []string{plainShape, nullShape, patchbayShape, patchbayLogShape},
			windows: map[string][]sample{
				plainShape: windows(50, 60), nullShape: windows(100, 101), patchbayShape: windows(117, 116), patchbayLogShape: windows(134, 150),
			},
		}},
		figures: []figure{{title: "memory", value: 33.444, unit: "MB", limit: 50}, {title: "free", value: 1234.5, unit: "ns/op"}},
	}
	var b strings.Builder
	require.NoError(t, r.write(&b))
	rows := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		rows[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"| tools/call, 64 B | plain | 950 | 0.05 | 0.10 | 50.0 | 25.0 | 25.0 | +20 % |",
		"| tools/call, 64 B | patchbay | 1.16 (1.15-1.17) | 2.32 (1.93-2.34) | 1.15 | FAIL |",
		"| tools/call, 64 B | patchbay+log | 1.34 (1.34-1.49) | 2.68 (2.50-2.68) | 1.35 | pass |",
		"| memory | 33.44 | MB | 50 | pass |",
		"| free | 1234 | ns/op | | |",
	} {
		assert.True(t, rows[want], "no row %s in\n%s", want, b.String())
	}
}

func TestParseBench(t *testing.T) {
	got := parseBench([]byte("goos: linux\nBenchmarkFind/adopted-2 \t 1000\t 812.5 ns/op\t 0 B/op\t 1 allocs/op\nBenchmarkX\n" +
		"BenchmarkMemory 1 5 ns/op 1533 B/session\nBenchmarkFind/adopted-2 1000 900 ns/op 0 B/op 1 allocs/op\nPASS\n"))
	assert.Equal(t, map[string]map[string]float64{
		"BenchmarkFind/adopted": {"ns/op": 812.5, "B/op": 0, "allocs/op": 1},
		"BenchmarkMemory":       {"ns/op": 5, "B/session": 1533},
	}, got)
}
