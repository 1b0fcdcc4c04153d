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
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"patchbay.dev/envoy"
)

// options are what a run depends on.
type options struct {
	self, patchbay, envoy string // binaries
	rounds                int
	time                  time.Duration
	only                  *regexp.Regexp
	also                  []string // NAME=VALUE
	micro                 bool
	out                   string
}

func main() {
	// Children die with the thread that started them: this one stays.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "streams":
		return runStreams(ctx, args[1:], out)
	case len(args) >= 2 && args[0] == "fixture":
		tools, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("fixture: %w", err)
		}
		return runFixture(ctx, tools, len(args) == 3 && args[2] == "notifies", in, out)
	case len(args) == 1 && args[0] == "null":
		return runNull(ctx, in, out)
	}
	opt, err := parseOptions(args)
	if err != nil {
		return err
	}
	r, err := runAll(ctx, opt)
	if err != nil {
		return err
	}
	r.command = "make bench"
	if err := r.write(out); err != nil || opt.out == "" {
		return err
	}
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(opt.out, b.Bytes(), 0o644); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Bounds of a run: the whole takes 11 minutes with the defaults.
const (
	maxRounds = 100
	maxTime   = time.Minute
)

func parseOptions(args []string) (*options, error) {
	opt := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&opt.patchbay, "patchbay", "bin/patchbay", "the built command")
	f.IntVar(&opt.rounds, "rounds", 20, "how often each shape is measured")
	f.DurationVar(&opt.time, "time", time.Second, "how long each time: many short rounds find more quiet moments of the machine than few long ones")
	f.BoolVar(&opt.micro, "micro", true, "also run Go benchmarks of single functions")
	f.StringVar(&opt.out, "out", "", "file to write the report to, besides the standard output")
	f.Func("also", "`NAME=VALUE`: also measure Patchbay with this in its environment, such as GOGC=400; may be repeated", func(v string) error {
		opt.also = append(opt.also, v)
		return nil
	})
	only := f.String("only", "", "regular expression: only the cases whose title matches")
	if err := f.Parse(args); err != nil {
		return nil, err //nolint:wrapcheck // the flag package says it all
	}
	if opt.rounds < 1 || opt.rounds > maxRounds || opt.time <= 0 || opt.time > maxTime || f.NArg() > 0 {
		return nil, fmt.Errorf("expected -rounds from 1 to %d, -time up to %s and no arguments", maxRounds, maxTime)
	}
	var err error
	if opt.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("CPU time is read from /proc: this needs Linux")
	}
	if opt.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if opt.patchbay, err = exec.LookPath("./" + opt.patchbay); err != nil {
		return nil, fmt.Errorf("%w: run `make build` first", err)
	}
	opt.envoy, err = envoy.Find()
	return opt, err //nolint:wrapcheck // it says what to do
}

// stages are the cases by the fixture that they need: a gateway has one list.
func stages() [][]benchCase {
	return [][]benchCase{
		{callCase(64), callCase(64 << 10), listCase(40, 1.1)},
		{listCase(1000, 0)},
	}
}

// choose returns the cases that -only lets through.
func (o *options) choose(cases []benchCase) []benchCase {
	var chosen []benchCase
	for i := range cases {
		if o.only.MatchString(cases[i].title) {
			chosen = append(chosen, cases[i])
		}
	}
	return chosen
}

func runAll(ctx context.Context, opt *options) (*report, error) {
	r := &report{date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), rounds: opt.rounds, window: opt.time}
	var err error
	if r.machine, err = machine(ctx, opt.envoy); err != nil {
		return nil, err
	}
	for _, cases := range stages() {
		if chosen := opt.choose(cases); len(chosen) > 0 {
			if err := runStage(ctx, opt, chosen, r); err != nil {
				return nil, err
			}
		}
	}
	if chosen := opt.choose(wayCases()); len(chosen) > 0 {
		if err := runWays(ctx, opt, chosen, r); err != nil {
			return nil, err
		}
	}
	if !opt.micro {
		return r, nil
	}
	fmt.Fprintln(os.Stderr, "Go benchmarks")
	figures, err := runMicro(ctx)
	r.figures = append(r.figures, figures...)
	return r, err
}

func runStage(ctx context.Context, opt *options, cases []benchCase, r *report) error {
	dir, err := os.MkdirTemp("", "bench-") // short: a socket's path has 108 bytes at most
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := startStage(ctx, opt, dir, cases)
	defer s.close()
	if err != nil {
		return err
	}
	if len(r.figures) == 0 {
		r.figures = append(r.figures, figure{
			title: "`patchbay serve`, idle, resident", value: float64(s.idle) / 1e6, unit: "MB", limit: 50,
		})
	}
	for i := range cases {
		m, err := s.measure(ctx, &cases[i], os.Stderr)
		if err != nil {
			return err
		}
		r.cases = append(r.cases, m)
	}
	return nil
}

// machine describes what the figures were made on.
func machine(ctx context.Context, envoyPath string) (string, error) {
	out, err := output(ctx, envoyPath, "--version")
	if err != nil {
		return "", err
	}
	version := regexp.MustCompile(`/(\d+\.\d+\.\d+)`).FindSubmatch(out)
	if version == nil {
		return "", fmt.Errorf("%s does not look like Envoy", filepath.Base(envoyPath))
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	model := "unknown processor"
	if _, rest, ok := strings.Cut(string(info), "model name"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		model = strings.TrimLeft(line, " \t:")
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	lastMinutes := strings.Fields(string(load))[1]
	return fmt.Sprintf("%d cores (%s, load average %s before), %s, Envoy %s, %s/%s",
		runtime.NumCPU(), model, lastMinutes, runtime.Version(), version[1], runtime.GOOS, runtime.GOARCH), nil
}
