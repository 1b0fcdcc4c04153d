package registry_test

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"patchbay.dev/registry"
)

// A catalog of 5,000 tools: 100 servers with 50 each, of an ordinary size.
const (
	benchServers = 100
	benchTools   = 50
)

func benchCatalog(version int) *registry.Catalog {
	c := &registry.Catalog{}
	for i := range benchTools {
		name := fmt.Sprintf("tool_%d", i)
		c.Tools = append(c.Tools, registry.Item{Name: name, Raw: []byte(fmt.Sprintf(
			`{"name":%q,"description":"Does number %d of what this server does, version %d, and says so in a sentence or two of text.",`+
				`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},`+
				`"limit":{"type":"integer","minimum":1},"tags":{"type":"array","items":{"type":"string"}}},"required":["query"]},`+
				`"annotations":{"readOnlyHint":true}}`, name, i, version))})
	}
	return c
}

func benchRegistry() *registry.Registry {
	r := registry.New(slog.New(slog.DiscardHandler))
	for i := range benchServers {
		r.Add(server(fmt.Sprintf("s%d", i)))
	}
	return r
}

// BenchmarkBuildAll checks, renders and merges the catalogs of all servers, and
// merges once. [BenchmarkChangeOne] takes in one changed catalog among them. The
// rendering of the list that clients get is in neither: it is done when a client
// asks.
func BenchmarkBuildAll(b *testing.B) {
	var catalogs []*registry.Catalog
	for range benchServers {
		catalogs = append(catalogs, benchCatalog(0))
	}
	for b.Loop() {
		registry.BuildAll(benchRegistry(), catalogs)
	}
}

// BenchmarkMergeAll is BuildAll without the checks and the rendering of
// definitions.
func BenchmarkMergeAll(b *testing.B) {
	r := benchRegistry()
	for i := range benchServers {
		r.SetReady(fmt.Sprintf("s%d", i), benchCatalog(0), registry.Facts{})
	}
	b.ReportAllocs()
	for b.Loop() {
		registry.MergeAll(r)
	}
}

// BenchmarkChangeOne also reports its time as a share of BuildAll's, both the
// fastest of several runs: more than 5 % would say that a change renders what it
// does not concern. `make bench` reports it with that limit.
func BenchmarkChangeOne(b *testing.B) {
	catalogs := make([]*registry.Catalog, benchServers)
	for i := range catalogs {
		catalogs[i] = benchCatalog(0)
	}
	r, change := benchRegistry(), changeOne()
	whole := time.Duration(math.MaxInt64)
	for range 2 {
		whole = min(whole, timed(func() { registry.BuildAll(r, catalogs) }))
	}
	one := time.Duration(math.MaxInt64)
	b.ReportAllocs()
	for b.Loop() {
		one = min(one, timed(change))
	}
	b.ReportMetric(100*float64(one)/float64(whole), "%-of-whole")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// changeOne returns what changes every tool of one server among all.
func changeOne() func() {
	r := benchRegistry()
	for i := range benchServers {
		r.SetReady(fmt.Sprintf("s%d", i), benchCatalog(0), registry.Facts{})
	}
	versions := []*registry.Catalog{benchCatalog(1), benchCatalog(2)}
	i := 0
	return func() {
		r.SetReady("s50", versions[i%2], registry.Facts{})
		i++
	}
}

// BenchmarkStateOne takes in that one server is lost or back.
func BenchmarkStateOne(b *testing.B) {
	r := benchRegistry()
	c := benchCatalog(0)
	for i := range benchServers {
		r.SetReady(fmt.Sprintf("s%d", i), c, registry.Facts{})
	}
	b.ReportAllocs()
	for b.Loop() {
		r.SetUnavailable("s50", registry.ReasonUnreachable, "")
		r.SetReady("s50", c, registry.Facts{})
	}
}
