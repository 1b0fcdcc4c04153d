package admin

import "github.com/prometheus/client_golang/prometheus"

// Counts is what the registry looks like at one moment.
type Counts struct {
	// Servers is how many servers are in each state. States without a server
	// are in it too, so that their series go to 0 instead of away.
	Servers map[string]int
	// Tools is how many tools are listed, of all servers.
	Tools int
}

// CountsSource is the registry as the collector sees it. Counts is called at
// each scrape, and from several goroutines.
type CountsSource interface {
	Counts() Counts
}

// CountsFunc makes a CountsSource of a function.
type CountsFunc func() Counts

// Counts calls the function.
func (f CountsFunc) Counts() Counts { return f() }

type collector struct {
	source         CountsSource
	servers, tools *prometheus.Desc
}

// NewCollector returns the gauges patchbay_servers{state} and patchbay_tools,
// read from the source at each scrape.
func NewCollector(source CountsSource) prometheus.Collector {
	return &collector{
		source:  source,
		servers: prometheus.NewDesc("patchbay_servers", "MCP servers by state.", []string{"state"}, nil),
		tools:   prometheus.NewDesc("patchbay_tools", "Tools of all servers that are listed.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.servers
	out <- c.tools
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	counts := c.source.Counts()
	for state, n := range counts.Servers {
		out <- prometheus.MustNewConstMetric(c.servers, prometheus.GaugeValue, float64(n), state)
	}
	out <- prometheus.MustNewConstMetric(c.tools, prometheus.GaugeValue, float64(counts.Tools))
}
