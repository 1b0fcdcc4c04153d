package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"patchbay.dev/envoy"
)

// Limits of `make bench-streams`.
const (
	maxStreamMemory = 25.0 // KB for a stream with its session
	maxNotifyTime   = 2.0  // seconds until the last of all streams has read a change
)

// settleTime is how long the gateway has to itself before its memory is read,
// and pauseTime the time between two changes.
const (
	settleTime = 10 * time.Second
	pauseTime  = time.Second
	// hearTime bounds the wait for all streams: what takes longer is lost.
	hearTime = time.Minute
)

// streamOptions are what a run of `bench streams` depends on.
type streamOptions struct {
	options
	streams, changes int
	throughEnvoy     bool
}

// runStreams measures many idle GET streams and writes the report.
func runStreams(ctx context.Context, args []string, out io.Writer) error {
	opt, err := parseStreamOptions(args)
	if err != nil {
		return err
	}
	r := &streamReport{date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), streams: opt.streams, changes: opt.changes}
	if r.machine, err = machine(ctx, opt.envoy); err != nil {
		return err
	}
	files, err := raiseFiles()
	if err != nil {
		return err
	}
	if files < uint64(opt.streams)+200 { //nolint:gosec // positive
		return fmt.Errorf("%d open files are allowed, too few for %d streams: raise the limit (ulimit -n)", files, opt.streams)
	}
	if r.direct, err = measureStreams(ctx, opt, false); err != nil {
		return err
	}
	if opt.throughEnvoy {
		if r.throughEnvoy, err = measureStreams(ctx, opt, true); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	r.write(&b)
	if opt.out != "" {
		if err := os.WriteFile(opt.out, b.Bytes(), 0o644); err != nil { //nolint:gosec // documentation
			return fmt.Errorf("report: %w", err)
		}
	}
	_, err = out.Write(b.Bytes())
	return err //nolint:wrapcheck // of the terminal
}

func parseStreamOptions(args []string) (*streamOptions, error) {
	opt := &streamOptions{}
	f := flag.NewFlagSet("bench streams", flag.ContinueOnError)
	f.StringVar(&opt.patchbay, "patchbay", "bin/patchbay", "the built command")
	f.IntVar(&opt.streams, "streams", 10_000, "how many sessions, each with a stream")
	f.IntVar(&opt.changes, "changes", 5, "how often the list of tools changes")
	f.BoolVar(&opt.throughEnvoy, "envoy", true, "also measure the streams through Envoy")
	f.StringVar(&opt.out, "out", "", "file to write the report to, besides the standard output")
	if err := f.Parse(args); err != nil {
		return nil, err //nolint:wrapcheck // the flag package says it all
	}
	if opt.streams < 1 || opt.streams > 20_000 || opt.changes < 1 || opt.changes > 60 || f.NArg() > 0 {
		return nil, errors.New("expected -streams from 1 to 20000, -changes from 1 to 60 and no arguments")
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("memory is read from /proc: this needs Linux")
	}
	var err error
	if opt.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if opt.patchbay, err = exec.LookPath("./" + opt.patchbay); err != nil {
		return nil, fmt.Errorf("%w: run `make build` first", err)
	}
	opt.envoy, err = envoy.Find()
	return opt, err //nolint:wrapcheck // it says what to do
}

// memory is what a gateway takes, in bytes: resident, and what the Go runtime
// says of it.
type memory struct{ resident, heap, stacks float64 }

// streamFigures are what one way to the streams came to.
type streamFigures struct {
	before, idle, after memory        // before the streams, with them, and after the changes
	envoy               memory        // only what is resident, with the streams; 0 where there is none
	opened              time.Duration // until all streams were open
	heard               []time.Duration
}

// listeningGateway is a gateway whose fixture notifies.
type listeningGateway struct {
	stage
	sh          *shape
	admin, addr string // addr is where clients connect
	fixture     *process
}

// measureStreams measures a fresh gateway, at the broker's own port or through
// Envoy.
func measureStreams(ctx context.Context, opt *streamOptions, throughEnvoy bool) (*streamFigures, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("directory for sockets: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	g := &listeningGateway{stage: stage{opt: &opt.options, dir: dir}}
	defer g.close()
	if err := g.start(ctx, throughEnvoy); err != nil {
		return nil, err
	}
	f := &streamFigures{}
	if f.before, err = g.settled(ctx); err != nil {
		return nil, err
	}
	var envoyBefore int64
	if throughEnvoy {
		if envoyBefore, err = g.sh.envoy.rss(); err != nil {
			return nil, err
		}
	}
	a := newAudience()
	defer a.close()
	begin := time.Now()
	if err := a.open(ctx, g.addr, opt.streams); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, g.sh.server.log.String())
	}
	f.opened = time.Since(begin)
	if f.idle, err = g.settled(ctx); err != nil {
		return nil, err
	}
	if throughEnvoy {
		now, err := g.sh.envoy.rss()
		if err != nil {
			return nil, err
		}
		f.envoy.resident = float64(now - envoyBefore)
	}
	if open, err := metric(ctx, g.admin, "patchbay_streams"); err != nil || int(open) != opt.streams {
		return nil, fmt.Errorf("%w: %.0f of %d streams are open: %w", errAnswer, open, opt.streams, err)
	}
	if f.heard, err = g.changes(ctx, a, opt.changes); err != nil {
		return nil, err
	}
	f.after, err = g.settled(ctx)
	return f, err
}

// start starts the fixture, the gateway and, if wanted, Envoy.
func (g *listeningGateway) start(ctx context.Context, throughEnvoy bool) error {
	var err error
	if g.fixture, err = g.stage.start("fixture", nil, g.opt.self, "fixture", "1", "notifies"); err != nil {
		return err
	}
	if g.stage.fixture, err = g.fixture.line(); err != nil {
		return err
	}
	g.sh = &shape{name: patchbayShape, fixed: never}
	at := g.sockets(patchbayShape)
	for _, address := range []*string{&g.sh.addr, &at.broker, &g.admin} {
		if *address, err = freeAddress(ctx); err != nil {
			return err
		}
	}
	file, bootstrap, err := g.configure(ctx, patchbayShape, g.sh.addr, g.admin, withoutLog, at)
	if err != nil {
		return err
	}
	if g.sh.server, err = g.stage.start(patchbayShape, nil, g.opt.patchbay, append([]string{"serve", "--config", file}, at.flags()...)...); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { _, err := get(ctx, "http://"+g.admin+"/readyz"); return err }
	if err := g.sh.server.waitFor(ctx, "it is ready", ready); err != nil {
		return err
	}
	if g.addr = at.broker; !throughEnvoy {
		return nil
	}
	g.addr = g.sh.addr
	return g.startEnvoy(ctx, g.sh, bootstrap)
}

// changes adds one tool after the other and returns how long it took each time
// until all streams had read of it.
func (g *listeningGateway) changes(ctx context.Context, a *audience, n int) ([]time.Duration, error) {
	var took []time.Duration
	for i := range n {
		ctx, cancel := context.WithTimeout(ctx, hearTime)
		begin := time.Now()
		err := g.fixture.tell("change")
		if err == nil {
			err = a.await(ctx, i+1)
		}
		took = append(took, time.Since(begin))
		if err == nil {
			err = pause(ctx, pauseTime)
		}
		cancel()
		if err != nil {
			return nil, fmt.Errorf("change %d: %w\n%s", i+1, err, g.sh.server.log.String())
		}
	}
	if most := a.most(); most != n {
		return nil, fmt.Errorf("%w: a stream has read %d notifications of %d changes", errAnswer, most, n)
	}
	return took, nil
}

// settled reads the memory of the gateway when it has had some time to itself.
func (g *listeningGateway) settled(ctx context.Context) (memory, error) {
	if err := pause(ctx, settleTime); err != nil {
		return memory{}, err
	}
	resident, err := g.sh.server.rss()
	if err != nil {
		return memory{}, err
	}
	m := memory{resident: float64(resident)}
	if m.heap, err = metric(ctx, g.admin, "go_memstats_heap_alloc_bytes"); err != nil {
		return memory{}, err
	}
	m.stacks, err = metric(ctx, g.admin, "go_memstats_stack_inuse_bytes")
	return m, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // interrupted
	}
}

// metric reads a metric without labels.
func metric(ctx context.Context, admin, name string) (float64, error) {
	page, err := get(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(page)
	if m == nil {
		return 0, fmt.Errorf("metrics: no %s", name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0, fmt.Errorf("metrics: %s: %w", name, err)
	}
	return v, nil
}

// worst is the longest of some times, in seconds.
func worst(all []time.Duration) float64 { return slices.Max(all).Seconds() }
