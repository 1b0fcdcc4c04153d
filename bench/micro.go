package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// microBenchmarks are the Go benchmarks whose results stand in the report.
var microBenchmarks = []struct {
	pkg, run string
	figures  []figure
}{
	{"./router", "^BenchmarkDecide/(call|call64KiB|list40)$", []figure{
		{title: "`router.Decide` of a tools/call (64 B)", bench: "BenchmarkDecide/call", unit: "ns/op", limit: 2000},
		{title: "its allocations", bench: "BenchmarkDecide/call", unit: "allocs/op", limit: 3},
		{title: "`router.Decide` of a tools/call (64 KiB)", bench: "BenchmarkDecide/call64KiB", unit: "ns/op"},
		{title: "`router.Decide` of a tools/list (40 tools)", bench: "BenchmarkDecide/list40", unit: "ns/op"},
	}},
	{"./internal/session", "^(BenchmarkFind|BenchmarkMemory)$", []figure{
		{title: "opening a sealed session id", bench: "BenchmarkFind/adopted", unit: "ns/op", limit: 1000},
		{title: "memory of an idle session with one backend session", bench: "BenchmarkMemory", unit: "B/session", limit: 2048},
	}},
	{"./registry", "^BenchmarkChangeOne$", []figure{
		{title: "a change of 50 tools of 5,000, against building all", bench: "BenchmarkChangeOne", unit: "%-of-whole", limit: 5},
	}},
}

// figure is one number of the report and its limit; 0 has none.
type figure struct {
	title, bench, unit string
	value, limit       float64
	text               string // instead of the value, where not empty
}

// runMicro runs the Go benchmarks and fills in their figures.
func runMicro(ctx context.Context) ([]figure, error) {
	var all []figure
	for _, m := range microBenchmarks {
		out, err := output(ctx, "go", "test", "-run", "^$", "-bench", m.run, "-benchmem", "-count", "5", m.pkg)
		if err != nil {
			return nil, err
		}
		results := parseBench(out)
		for _, f := range m.figures {
			v, ok := results[f.bench][f.unit]
			if !ok {
				return nil, fmt.Errorf("no %s of %s in\n%s", f.unit, f.bench, out)
			}
			f.value = v
			all = append(all, f)
		}
	}
	return all, nil
}

// parseBench reads what `go test -bench` prints: by name, without the number of
// processors, and by unit; of several runs the least.
func parseBench(out []byte) map[string]map[string]float64 {
	results := map[string]map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := fields[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		if results[name] == nil {
			results[name] = map[string]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if old, seen := results[name][fields[i+1]]; err == nil && (!seen || v < old) {
				results[name][fields[i+1]] = v
			}
		}
	}
	return results
}
