package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// streamReport is all that one run of `bench streams` found.
type streamReport struct {
	machine, date    string
	streams, changes int
	direct           *streamFigures
	throughEnvoy     *streamFigures // nil was not measured
}

const streamIntroduction = `# Many idle streams

Made by ` + "`make bench-streams`" + ` on %s, %s. Do not edit: the next run replaces it.

%d clients have a session and an idle GET stream each, at ` + "`patchbay serve`" + `. A fixture backend with its own GET stream adds a
tool, %d times, a second apart; the clock runs from then until the last client has read that the list changed. Each client must read
exactly one notification per change. The clients run on the same machine.

Memory is what is resident %s after the last stream was opened, less what was before the first session: garbage that the collector has
not yet taken counts. KB are 1,000 bytes. Through Envoy, the way that clients come, their streams share the connections of HTTP/2
between Envoy and the broker: the limit of memory is for these. Clients at the broker's own port, which only tests and the operator
reach, have a connection of HTTP/1.1 each. That costs the broker more: Go's HTTP server keeps 10 KB of buffers for it, and two
goroutines with 10 KB of stacks.

`

func (r *streamReport) write(w io.Writer) {
	fmt.Fprintf(w, streamIntroduction, r.date, r.machine, r.streams, r.changes, settleTime)
	if r.throughEnvoy != nil {
		fmt.Fprint(w, "## Through Envoy\n\n")
		writeFigures(w, append(r.throughEnvoy.figures(r.streams, maxStreamMemory, maxNotifyTime), figure{
			title: "Envoy, resident, per stream", value: perStream(r.throughEnvoy.envoy.resident, 0, r.streams), unit: "KB",
		}))
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "## At the broker's own port\n\n")
	writeFigures(w, r.direct.figures(r.streams, 0, maxNotifyTime))
}

// figures are the rows of one way.
func (f *streamFigures) figures(streams int, memoryLimit, timeLimit float64) []figure {
	per := func(now, before float64) float64 { return perStream(now, before, streams) }
	return []figure{
		{title: "patchbay, resident, per stream with its session", value: per(f.idle.resident, f.before.resident), unit: "KB", limit: memoryLimit},
		{title: "the same after the changes", value: per(f.after.resident, f.before.resident), unit: "KB", limit: memoryLimit},
		{title: "of it heap, garbage included", value: per(f.idle.heap, f.before.heap), unit: "KB"},
		{title: "of it stacks", value: per(f.idle.stacks, f.before.stacks), unit: "KB"},
		{title: "resident before the first session", value: f.before.resident / 1e6, unit: "MB"},
		{title: "resident with all streams", value: f.idle.resident / 1e6, unit: "MB"},
		{title: "a change until all have read it, slowest", value: worst(f.heard), unit: "s", limit: timeLimit},
		{title: "each", text: each(f.heard), unit: "s"},
		{title: "opening all sessions and streams", value: f.opened.Seconds(), unit: "s"},
	}
}

// perStream is in KB.
func perStream(now, before float64, streams int) float64 {
	return (now - before) / 1e3 / float64(streams)
}

func each(all []time.Duration) string {
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprintf("%.2f", d.Seconds()))
	}
	return strings.Join(out, ", ")
}
