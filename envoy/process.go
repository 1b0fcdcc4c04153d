package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// How a dead Envoy is started again.
const (
	minBackoff   = 200 * time.Millisecond
	maxBackoff   = 10 * time.Second
	settledAfter = 30 * time.Second // up for that long: the next death starts at minBackoff
	killAfter    = 5 * time.Second  // from SIGTERM to SIGKILL
)

// ErrAddressInUse is wrapped by what Supervise returns when somebody else
// listens on the endpoint's address.
var ErrAddressInUse = errors.New("address in use")

// ProcessConfig is how to run Envoy.
type ProcessConfig struct {
	// Path is the binary; see Find.
	Path string
	// Bootstrap is the configuration; see Bootstrap.
	Bootstrap []byte
	// Listen is the endpoint in it, "host:port", and TLS whether it is https.
	Listen string
	TLS    bool
	// Logs gets each line that Envoy writes, without the line's end and cut
	// after 8 KiB. It is called by one goroutine at a time; nil drops them.
	Logs func(line string)
	// LogLevel is Envoy's; "" is warning.
	LogLevel string
	// Concurrency is the number of worker threads; 0 is one per processor.
	Concurrency int
	// Ready is called each time that Envoy serves the endpoint with its
	// routes: after the start and after each restart. May be nil.
	Ready func()
	// Log tells of deaths and restarts; nil is silent.
	Log *slog.Logger
	// Metrics counts them; may be nil.
	Metrics *Metrics
}

// Supervise runs Envoy until ctx is done, and starts it again when it dies.
// When Envoy ends before it ever served, it returns an error of one line that
// says why, instead of trying again. Envoy ends with this process, however that
// ends (on Linux also by SIGKILL).
func Supervise(ctx context.Context, cfg ProcessConfig) error {
	s := &supervisor{cfg: cfg, log: cfg.Log, metrics: cfg.Metrics}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	if err := checkFree(ctx, cfg.Listen); err != nil {
		return err
	}
	return s.loop(ctx)
}

// checkFree gives a clear error where Envoy's would be found in its log.
func checkFree(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: %s: stop what listens there or choose another address with listen", ErrAddressInUse, address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("address %s may not be used by this user: choose a port above 1023 with listen", address)
	case err != nil:
		return fmt.Errorf("address %s cannot be used: %w: choose another with listen", address, err)
	}
	return l.Close()
}

// writeBootstrap leaves a file that only this user can read.
func writeBootstrap(b []byte) (string, error) {
	f, err := os.CreateTemp("", "patchbay-envoy-*.yaml")
	if err != nil {
		return "", fmt.Errorf("envoy bootstrap: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("envoy bootstrap: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// supervisor is owned by the goroutine of Supervise.
type supervisor struct {
	cfg     ProcessConfig
	log     *slog.Logger
	metrics *Metrics
}

func (s *supervisor) loop(ctx context.Context) error {
	served := false
	backoff := minBackoff
	for {
		started := time.Now()
		ready, last, err := s.run(ctx)
		if ctx.Err() != nil {
			return nil // it ended because it was told to
		}
		served = served || ready
		if !served {
			return fmt.Errorf("envoy did not start: %s", reason(last, err))
		}
		s.metrics.deaths.Inc()
		if time.Since(started) > settledAfter {
			backoff = minBackoff
		}
		wait := backoff/2 + rand.N(backoff/2) // jitter
		s.log.Error("envoy died; starting it again", "error", reason(last, err), "in", wait)
		backoff = min(2*backoff, maxBackoff)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// reason is one line: what Envoy wrote last, else how it ended.
func reason(last string, err error) string {
	switch {
	case last != "" && err != nil:
		return last + " (" + err.Error() + ")"
	case err != nil:
		return err.Error()
	}
	return "it ended by itself without an error"
}

// run is one life of Envoy. It reports whether the endpoint was ever served,
// and the last line of an error that Envoy wrote.
func (s *supervisor) run(ctx context.Context) (ready bool, last string, err error) {
	bootstrap, err := writeBootstrap(s.cfg.Bootstrap)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = os.Remove(bootstrap) }()
	r, w, err := os.Pipe()
	if err != nil {
		return false, "", fmt.Errorf("pipe: %w", err)
	}
	cmd := s.command(bootstrap)
	cmd.Stdout, cmd.Stderr = w, w
	proc, err := start(cmd)
	_ = w.Close() // the child has its own
	if err != nil {
		_ = r.Close()
		return false, "", err
	}
	s.metrics.starts.Inc()

	probeCtx, stopProbe := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { last = s.forward(r) })
	wg.Go(func() {
		if awaitReady(probeCtx, s.cfg.Listen, s.cfg.TLS) == nil {
			ready = true
			// Read by now; nothing stays behind when we are killed.
			_ = os.Remove(bootstrap)
			if s.cfg.Ready != nil {
				s.cfg.Ready()
			}
		}
	})
	err = proc.wait(ctx)
	stopProbe()
	wg.Wait()
	return ready, last, err
}

func (s *supervisor) command(bootstrap string) *exec.Cmd {
	level := s.cfg.LogLevel
	if level == "" {
		level = "warning"
	}
	args := []string{
		"-c", bootstrap, "--disable-hot-restart",
		// One record a line, whatever is in it.
		"--log-level", level, "--log-format", logFormat, "--log-format-escaped",
	}
	if s.cfg.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(s.cfg.Concurrency))
	}
	cmd := exec.Command(s.cfg.Path, args...) // the operator's own Envoy; proc.wait stops it, gently at first
	cmd.SysProcAttr = processAttributes()
	return cmd
}

// forward passes on what Envoy writes until it has ended, and keeps the last
// line that looks like the reason of an end.
func (s *supervisor) forward(r io.ReadCloser) (last string) {
	defer func() { _ = r.Close() }()
	readLines(r, func(line string) {
		if text, ok := fatal(line); ok {
			last = text
		}
		if s.cfg.Logs != nil {
			s.cfg.Logs(line)
		}
	})
	return last
}

// process is a started Envoy.
type process struct {
	pid  int
	done chan error // of Wait; gets one value
}

// start runs cmd on an operating system thread of its own: the kernel ends the
// child when the thread that made it ends (Pdeathsig), so no other goroutine
// may share or end that thread.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan error, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return p, nil
}

// wait returns when the process has ended. When ctx is done it is asked to end,
// and made to.
func (p *process) wait(ctx context.Context) error {
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
	}
	// The whole group: a wrapper script may stand between. Errors mean that it
	// is gone already.
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	kill := time.AfterFunc(killAfter, func() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) })
	defer kill.Stop()
	return <-p.done
}
