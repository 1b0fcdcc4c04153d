package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"patchbay.dev/registry"
)

// Catalog is the registry as this package sees it. Snapshot is called at each
// request and scrape, and from several goroutines.
type Catalog interface {
	Snapshot() *registry.Snapshot
}

const (
	// maxServerLabels bounds the values of the label server: the first servers
	// in their order have one of their own.
	maxServerLabels = 100
	// otherServers is the label of all further ones. No server can have it: a
	// server's name has no upper case.
	otherServers = "OTHER"
)

type collector struct {
	catalog                     Catalog
	servers, up, tools, dropped *prometheus.Desc
}

// NewCollector returns the gauges patchbay_servers{state},
// patchbay_server_up{server}, patchbay_tools and patchbay_items_dropped, read
// from the catalog at each scrape.
func NewCollector(catalog Catalog) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		catalog: catalog,
		servers: desc("patchbay_servers", "MCP servers by state.", "state"),
		up:      desc("patchbay_server_up", "1 when the MCP server is ready; OTHER stands for those after the first 100, and is 1 when all of them are.", "server"),
		tools:   desc("patchbay_tools", "Tools of all servers that are listed."),
		dropped: desc("patchbay_items_dropped", "Tools, prompts and resources of servers that clients do not get, because something is wrong with them."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.servers, c.up, c.tools, c.dropped} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	states := map[registry.State]int{}
	tools, dropped, otherUp := 0, 0, 1.0
	all := c.catalog.Snapshot().Servers()
	for i, srv := range all {
		states[srv.State]++
		tools += srv.Listed
		dropped += droppedOf(srv)
		up := 0.0
		if srv.State == registry.Ready {
			up = 1
		}
		if i < maxServerLabels {
			gauge(c.up, up, srv.Config.Name)
		} else {
			otherUp = min(otherUp, up)
		}
	}
	if len(all) > maxServerLabels {
		gauge(c.up, otherUp, otherServers)
	}
	for _, state := range registry.States() { // those of no server too: 0, not absent
		gauge(c.servers, float64(states[state]), state.String())
	}
	gauge(c.tools, float64(tools))
	gauge(c.dropped, float64(dropped))
}

func droppedOf(srv *registry.Server) int {
	n := 0
	for i := range srv.Problems {
		if srv.Problems[i].Dropped {
			n++
		}
	}
	return n
}
