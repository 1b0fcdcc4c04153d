// Command bench measures the gateway through the real Envoy and writes the
// tables of docs/benchmarks.md; `make bench` runs it.
//
// Flow: main starts one stage after the other (stage.go). A stage is a fixture
// backend with so many tools (fixture.go) and the shapes in front of it, each
// with an Envoy of its own, one worker:
//
//   - plain: a route to the fixture, no ext_proc (plain.go),
//   - null: the gateway's own Envoy configuration, with an ext_proc server that
//     repeats the one answer that Patchbay gave when it was asked (null.go,
//     capture.go),
//   - patchbay: bin/patchbay serve, and the bootstrap that it renders.
//
// One more stage has a gateway alone, and instead of the shapes the ways that a
// call can take through it (ways.go).
//
// `bench streams`, which `make bench-streams` runs, measures many idle GET streams
// instead: memory, and how long a change takes to reach them all (streams.go for
// the run, listener.go for the clients, notify.go for the fixture's part).
//
// Rounds go over the shapes in turn, so that what else the machine does meets
// all of them. The load generator (load.go) lives in this process; the fixture,
// the null server, the Envoys and Patchbay are children, of which CPU and memory
// are read from /proc (process.go). Then the Go benchmarks of single functions
// run (micro.go), and the report is made (report.go).
//
// Everything listens on 127.0.0.1 or on Unix sockets in a temporary directory.
// Rounds, time and sizes are bounded; every child ends with this process.
//
// Concurrency: one goroutine per connection while a window is measured, each
// owning its connection and its latencies; everything else is main's.
package main
