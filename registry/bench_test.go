package registry_test

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
// merges once. BenchmarkChangeOne takes in one changed catalog among them. The
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

func BenchmarkChangeOne(b *testing.B) {
	change := changeOne()
	b.ReportAllocs()
	for b.Loop() {
		change()
	}
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

// One change of a server with 50 tools in a catalog of 5,000 costs at most 1/20
// of building it whole; measured is 1/80.
func TestChangeOneIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	catalogs := make([]*registry.Catalog, benchServers)
	for i := range catalogs {
		catalogs[i] = benchCatalog(0)
	}
	r, change := benchRegistry(), changeOne()
	build := fastest(2, func() { registry.BuildAll(r, catalogs) })
	one := fastest(15, change)
	t.Logf("whole %v, one change %v: 1/%d", build, one, build/one)
	assert.LessOrEqual(t, 20*one, build)
}

func fastest(rounds int, f func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range rounds {
		began := time.Now()
		f()
		best = min(best, time.Since(began))
	}
	return best
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
