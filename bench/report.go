package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is all that one run found.
type report struct {
	machine, command, date string
	rounds                 int
	window                 time.Duration
	cases                  []*samples
	ways                   []*samples
	figures                []figure
}

const introduction = `# Benchmarks

Made by ` + "`%s`" + ` on %s, %s. Do not edit: the next run replaces it.

A load generator keeps %d connections busy, each with its own MCP session and one request at a time, and compares every
answer byte by byte. Behind the real Envoy, with one worker, stands a fixture backend that answers at once. The shapes:

- **plain**: an Envoy with the gateway's listener and a route to the fixture, without ext_proc: the floor.
- **null**: Envoy exactly as Patchbay configures it, with an ext_proc server that has the same settings (gRPC, Go runtime,
  Unix socket) and gRPC's usual codec, reads the whole body and answers each request with the one answer that Patchbay gave when it was asked:
  the same headers and metadata and the body as it came, or the same bytes for a list. It is what the mechanism costs.
- **patchbay**: ` + "`patchbay serve`" + `, sessions open, calls on the direct way (its metrics are asked whether they went it).
- **patchbay+log**: the same, and Envoy reports by its access log service what came of each call (the default).

Each figure is the best of %d rounds of %s, which go over the shapes in turn; CPU is the scheduler's count of the process's
threads, divided by the requests. A ratio is that of the minima; behind it, in brackets, is the range of the ratios
of the single rounds. Generator and fixture share the machine's processors with what is measured: rate and latency
say less than CPU.

`

// write writes the report as Markdown.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.command, r.date, r.machine, connections, r.rounds, r.window)
	b.WriteString("## Requests\n\n")
	r.requests(&b)
	b.WriteString("\n## Ratios of CPU per request\n\n")
	r.ratios(&b)
	r.writeWays(&b)
	b.WriteString("\n## Single figures\n\n")
	writeFigures(&b, r.figures)
	_, err := io.WriteString(w, b.String())
	return err //nolint:wrapcheck // the caller names the file
}

func (r *report) requests(w io.Writer) {
	t := newTable(w, "case", "shape", "requests/s", "p50 ms", "p99 ms", "CPU us/request", "of it Envoy", "of it Go", "spread of CPU")
	for _, c := range r.cases {
		for _, name := range c.shapes {
			ws := c.windows[name]
			least, most := leastCPU(ws), slices.MaxFunc(ws, byCPU)
			rate := slices.MaxFunc(ws, func(a, b sample) int { return cmp.Compare(a.rate, b.rate) }).rate
			t.row(c.c.title, name, fmt.Sprintf("%.0f", rate),
				millis(best(ws, func(s *sample) time.Duration { return s.p50 })),
				millis(best(ws, func(s *sample) time.Duration { return s.p99 })),
				fmt.Sprintf("%.1f", micros(least.cpu())),
				fmt.Sprintf("%.1f", micros(least.envoy)),
				fmt.Sprintf("%.1f", micros(least.own)),
				fmt.Sprintf("+%.0f %%", 100*(float64(most.cpu())/float64(least.cpu())-1)))
		}
	}
	t.flush()
}

func byCPU(a, b sample) int { return cmp.Compare(a.cpu(), b.cpu()) }

func leastCPU(ws []sample) sample { return slices.MinFunc(ws, byCPU) }

func best(ws []sample, of func(*sample) time.Duration) time.Duration {
	least := of(&ws[0])
	for i := range ws {
		least = min(least, of(&ws[i]))
	}
	return least
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

func (r *report) ratios(w io.Writer) {
	t := newTable(w, "case", "shape", "to null", "to plain", "limit to null", "")
	for _, c := range r.cases {
		for _, name := range c.shapes {
			if name == plainShape || name == nullShape {
				continue
			}
			toNull := ratioOf(c.windows[name], c.windows[nullShape])
			limit := c.c.limitOf(name)
			t.row(c.c.title, name, toNull.String(), ratioOf(c.windows[name], c.windows[plainShape]).String(),
				number(limit), verdict(toNull.minima, limit))
		}
	}
	t.flush()
}

// ratio is that of the minima, and the lowest and highest of single rounds.
type ratio struct{ minima, low, high float64 }

func ratioOf(a, b []sample) ratio {
	div := func(x, y time.Duration) float64 { return float64(x) / float64(y) }
	r := ratio{minima: div(best(a, (*sample).cpu), best(b, (*sample).cpu))}
	for i := range a {
		v := div(a[i].cpu(), b[i].cpu())
		if i == 0 || v < r.low {
			r.low = v
		}
		r.high = max(r.high, v)
	}
	return r
}

func (r ratio) String() string { return fmt.Sprintf("%.2f (%.2f-%.2f)", r.minima, r.low, r.high) }

func writeFigures(w io.Writer, figures []figure) {
	t := newTable(w, "figure", "value", "unit", "limit", "")
	for _, f := range figures {
		t.row(f.title, cmp.Or(f.text, number(f.value)), f.unit, number(f.limit), verdict(f.value, f.limit))
	}
	t.flush()
}

// number writes at most two decimals; 0, where nothing is allowed or known, as
// nothing.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func verdict(value, limit float64) string {
	switch {
	case limit == 0:
		return ""
	case value <= limit:
		return "pass"
	}
	return "FAIL"
}

// table writes a Markdown table whose columns are aligned.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)}
	t.row(columns...)
	for i, c := range columns {
		columns[i] = strings.Repeat("-", max(3, len(c)))
	}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	fmt.Fprintf(t.w, "| %s |\n", strings.Join(cells, "\t| "))
}

func (t *table) flush() { _ = t.w.Flush() } // into memory
