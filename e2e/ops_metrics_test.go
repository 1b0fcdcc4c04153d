package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// Each request is counted once, by its method, way and outcome, whichever part
// of the gateway ended it.
func TestOpsMetrics(t *testing.T) {
	fake, down := mcptest.New(t, nil), mcptest.New(t, nil)
	down.Stop()
	g := up(t, entry("s", fake), entry("down", down))
	for _, name := range []string{
		"patchbay_decision_seconds_count", "patchbay_sessions", "patchbay_streams", "patchbay_streams_dropped_total",
		"patchbay_panics_total", "patchbay_servers", "patchbay_tools", "patchbay_envoy_starts_total",
		"patchbay_envoy_deaths_total", "patchbay_xds_connected", "go_goroutines", "process_start_time_seconds",
	} {
		assert.Contains(t, g.adminGet("/metrics"), "\n"+name, "there before the first request")
	}
	assert.InDelta(t, 1, g.metric("patchbay_servers", `state="ready"`), 0)
	assert.InDelta(t, 1, g.metric("patchbay_servers", `state="unavailable"`), 0)
	assert.InDelta(t, 2, g.metric("patchbay_tools"), 0)
	assert.Zero(t, g.metric("patchbay_panics_total"))

	c := g.client()
	count := func(method, way, outcome string, do func()) {
		t.Helper()
		total, decided := g.metric("patchbay_requests_total"), g.metric("patchbay_decision_seconds_count")
		labels := []string{`method="` + method + `"`, `way="` + way + `"`, `outcome="` + outcome + `"`}
		series := g.metric("patchbay_requests_total", labels...)
		do()
		// What the broker serves is counted when it has ended.
		require.Eventually(t, func() bool { return g.metric("patchbay_requests_total", labels...) == series+1 },
			patience, 10*time.Millisecond, "%s %s %s: %s", method, way, outcome, requestsIn(g.adminGet("/metrics")))
		assert.InDelta(t, total+1, g.metric("patchbay_requests_total"), 0, "%s counted once", method)
		want := decided + 1
		if way == "recovered" {
			want++ // it was decided before it went the direct way
		}
		assert.LessOrEqual(t, g.metric("patchbay_decision_seconds_count"), want, method)
	}
	post := func(body string) func() { return func() { c.Post(body) } }
	count("ping", "reply", "ok", func() { c.Call("ping", "") })
	count("tools/list", "reply", "ok", func() { c.Call("tools/list", `{}`) })
	count("initialize", "broker", "ok", func() {
		c.Call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
	})
	count("tools/call", "broker", "ok", func() { c.CallTool("s_echo", `{}`) })
	count("tools/call", "direct", "routed", func() { c.CallTool("s_echo", `{}`) })
	count("tools/call", "reply", "not_found", func() { c.CallTool("none", `{}`) })
	count("other", "reply", "method_unknown", func() { c.Call("no/such", `{}`) })
	count("other", "reply", "method_unknown", func() { c.Call("Tools/Call", `{}`) })
	count("other", "reply", "parse_error", post(`{`))
	count("other", "reply", "invalid_request", post(`"x"`))
	count("ping", "reply", "session_unknown", func() { c.Post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", "x") })
	count("ping", "reply", "no_session", func() { c.Post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", "") })
	count("notifications/initialized", "broker", "ok", post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	assert.NotContains(t, g.adminGet("/metrics"), "no/such", "what a client makes up is no label")

	sessions := g.metric("patchbay_sessions")
	more := g.client() // costs no memory before its first call or stream
	assert.InDelta(t, sessions, g.metric("patchbay_sessions"), 0)
	s := more.Stream("")
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 1 }, patience, 10*time.Millisecond)
	assert.InDelta(t, sessions+1, g.metric("patchbay_sessions"), 0)
	s.Close()
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, http.StatusNoContent, more.Delete().Status)
	assert.InDelta(t, sessions, g.metric("patchbay_sessions"), 0)
}

// A call that Envoy gave back to the broker is counted as one of both ways.
func TestOpsMetricsRecovered(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	for range 2 {
		require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	}
	fake.Forget()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	for way, n := range map[string]int{"broker": 1, "direct": 2, "recovered": 1} {
		assert.InDelta(t, n, g.calls(way), 0, way)
	}
}

// requestsIn shows the request counters in a failed test.
func requestsIn(metrics string) string {
	var b strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "patchbay_requests_total{") {
			fmt.Fprint(&b, line)
		}
	}
	return b.String()
}
