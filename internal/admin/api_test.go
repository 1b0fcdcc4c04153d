package admin

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

// gateway is an admin port in front of a registry.
type gateway struct {
	*registry.Registry
	t       *testing.T
	address string
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{Registry: registry.New(slog.New(slog.DiscardHandler)), t: t}
	o := options(new(atomic.Bool))
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(g))
	o.Gatherer, o.Catalog = reg, g
	g.address = start(t, New(o))
	return g
}

// into reads a JSON document.
func into[T any](g *gateway, path string) T {
	g.t.Helper()
	status, body := get(g.t, g.address, path, "")
	require.Equal(g.t, http.StatusOK, status, body)
	var out T
	require.NoError(g.t, json.Unmarshal([]byte(body), &out), body)
	return out
}

type toolPage struct {
	Tools []Tool
	Next  string
}

func (g *gateway) metrics() string {
	g.t.Helper()
	status, body := get(g.t, g.address, "/metrics", "")
	require.Equal(g.t, http.StatusOK, status, body)
	return body
}

func (g *gateway) add(name string, tools ...string) {
	g.Add(config.Server{
		Name: name, URL: "https://user:sesame@" + name + ".example/sesame?key=sesame",
		Headers: map[string]string{"Authorization": "Bearer sesame"},
	})
	if tools != nil {
		g.SetReady(name, catalog(tools...), registry.Facts{Revision: "2025-06-18", Sessions: true, LostStatus: 404, Stream: true})
	}
}

func catalog(tools ...string) *registry.Catalog {
	c := &registry.Catalog{}
	for _, n := range tools {
		c.Tools = append(c.Tools, registry.Item{Name: n, Raw: []byte(fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, n))})
	}
	return c
}

// D17, D18, D19: availability of servers and tools, in step with the connection,
// in the API and in the metrics.
func TestAvailability(t *testing.T) {
	g := startGateway(t)
	g.add("weather", "now", "week")
	g.add("files")

	s := into[Server](g, "/api/v1/servers/weather")
	assert.Equal(t, "ready", s.State)
	assert.Equal(t, 2, s.Listed)
	assert.Equal(t, "2025-06-18", s.Revision)
	assert.Equal(t, &Facts{Sessions: true, LostStatus: 404, Stream: true}, s.Facts)
	assert.Equal(t, &Offers{Tools: 2}, s.Offers)
	assert.Equal(t, "https://weather.example", s.Address)
	assert.Equal(t, "broker", s.Way)
	assert.Contains(t, s.WayReason, "Envoy")
	assert.WithinDuration(t, s.Since, s.Since.UTC(), 0)
	assert.False(t, s.Since.IsZero())
	files := into[Server](g, "/api/v1/servers/files")
	assert.Equal(t, "connecting", files.State)
	assert.Nil(t, files.Offers)
	assert.Equal(t, []Tool{
		{Name: "weather_now", Server: "weather", Original: "now", Available: true},
		{Name: "weather_week", Server: "weather", Original: "week", Available: true},
	}, into[toolPage](g, "/api/v1/tools").Tools)
	for _, line := range []string{`patchbay_server_up{server="weather"} 1`, `patchbay_server_up{server="files"} 0`, `patchbay_servers{state="ready"} 1`, "patchbay_tools 2"} {
		assert.Contains(t, g.metrics(), line+"\n")
	}

	g.SetUnavailable("weather", registry.ReasonUnreachable, "connection refused")
	s = into[Server](g, "/api/v1/servers/weather")
	assert.Equal(t, []any{"unavailable", "Unreachable", "connection refused", 0, "none"}, []any{s.State, s.Reason, s.Message, s.Listed, s.Way})
	assert.Equal(t, Tool{
		Name: "weather_now", Server: "weather", Original: "now", Reason: "Unreachable", Message: "connection refused",
	}, into[toolPage](g, "/api/v1/tools?server=weather").Tools[0])
	for _, line := range []string{`patchbay_server_up{server="weather"} 0`, `patchbay_servers{state="unavailable"} 1`, `patchbay_servers{state="ready"} 0`, "patchbay_tools 0"} {
		assert.Contains(t, g.metrics(), line+"\n")
	}

	g.SetReady("weather", catalog("now"), registry.Facts{})
	g.SetRoutable(func(string) bool { return true })
	s = into[Server](g, "/api/v1/servers/weather")
	assert.Equal(t, []any{"ready", "direct", ""}, []any{s.State, s.Way, s.WayReason})
	all := into[map[string][]Server](g, "/api/v1/servers")["servers"]
	require.Len(t, all, 2)
	assert.Equal(t, s, all[0])
	g.Remove("weather")
	status, body := get(t, g.address, "/api/v1/servers/weather", "")
	assert.Equal(t, http.StatusNotFound, status)
	assert.Contains(t, body, `{"error":"there is no server`)
}

// D14, D18: what is dropped is shown, with its reason.
func TestProblems(t *testing.T) {
	g := startGateway(t)
	c := catalog("good", "bad name")
	c.Tools = append(c.Tools, registry.Item{Name: "bad", Raw: []byte(`{"name":"bad","inputSchema":{"type":"strin"}}`)})
	g.add("s")
	g.SetReady("s", c, registry.Facts{})
	s := into[Server](g, "/api/v1/servers/s")
	assert.Equal(t, []int{1, 2, 2, 3}, []int{s.Listed, s.Dropped, s.ProblemCount, s.Offers.Tools})
	require.Len(t, s.Problems, 2)
	assert.Equal(t, "bad name", s.Problems[0].Item)
	assert.Equal(t, []any{"bad", "SchemaInvalid", true}, []any{s.Problems[1].Item, s.Problems[1].Reason, s.Problems[1].Dropped})
	assert.Empty(t, into[map[string][]Server](g, "/api/v1/servers")["servers"][0].Problems, "counted only")
	assert.Contains(t, g.metrics(), "patchbay_items_dropped 2\n")

	g.SetUnavailable("s", registry.ReasonLimitExceeded, "tools/list has more than 10000 items")
	s = into[Server](g, "/api/v1/servers/s")
	assert.Equal(t, []string{"unavailable", "LimitExceeded"}, []string{s.State, s.Reason})
}

func TestToolPages(t *testing.T) {
	g := startGateway(t)
	g.add("b", "4", "1", "3")
	g.add("a", "2", "1")
	var names []string
	after, pages := "", 0
	for {
		page := into[toolPage](g, "/api/v1/tools?limit=2&after="+after)
		pages++
		for _, tool := range page.Tools {
			names = append(names, tool.Name)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	assert.Equal(t, []string{"a_1", "a_2", "b_1", "b_3", "b_4"}, names)
	assert.Equal(t, 3, pages)
	assert.Len(t, into[toolPage](g, "/api/v1/tools?server=a&limit=10000").Tools, 2)
	for path, want := range map[string]int{
		"?limit=0": 400, "?limit=x": 400, "?limit=10001": 400, "?server=none": 404, "?server=A%22": 404,
	} {
		status, body := get(t, g.address, "/api/v1/tools"+path, "")
		assert.Equal(t, want, status, path)
		assert.Contains(t, body, `{"error":"`, path)
	}
}

// No page shows what is secret in the configuration of a server.
func TestNoSecrets(t *testing.T) {
	g := startGateway(t)
	g.add("one", "a")
	g.add("two")
	g.SetUnavailable("two", registry.ReasonUnreachable, "down")
	for _, path := range []string{"/api/v1/servers", "/api/v1/servers/one", "/api/v1/servers/two", "/api/v1/tools", "/metrics"} {
		status, body := get(t, g.address, path, "")
		assert.Equal(t, http.StatusOK, status)
		assert.NotContains(t, strings.ToLower(body), "sesame", path)
		assert.NotContains(t, body, "Authorization", path)
	}
}

// The label server has a bounded number of values.
func TestManyServers(t *testing.T) {
	g := startGateway(t)
	g.SetReady("", nil, registry.Facts{}) // nobody: does nothing
	for i := range maxServerLabels + 2 {
		g.add(fmt.Sprintf("s%d", i), "a")
	}
	assert.Equal(t, maxServerLabels+1, strings.Count(g.metrics(), "\npatchbay_server_up{"))
	assert.Contains(t, g.metrics(), `patchbay_server_up{server="OTHER"} 1`)
	g.SetUnavailable(fmt.Sprintf("s%d", maxServerLabels), registry.ReasonUnreachable, "")
	assert.Contains(t, g.metrics(), `patchbay_server_up{server="OTHER"} 0`)
}
