package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTime is from asking a child to end to ending it.
const stopTime = 5 * time.Second

// process is one child.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader // its standard output
	log   tail          // its standard error
	done  chan struct{} // closed when it has ended
}

// start runs a child. It dies with this process at the latest. env is added to
// the environment.
func start(name string, env []string, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})} //nolint:noctx // stop ends it in order
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = processAttributes()
	p.cmd.Stderr = &p.log
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.cmd.Stdout, p.lines = outWriter, bufio.NewReader(out)
	err = p.cmd.Start()
	_ = outWriter.Close() // the child's now
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // stop and waitFor tell that it ended
		_ = out.Close()
		close(p.done)
	}()
	return p, nil
}

// line reads a line that the child prints.
func (p *process) line() (string, error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended: %w\n%s", p.name, err, p.log.String())
	}
	return strings.TrimSpace(line), nil
}

// tell writes a line to the child and awaits its answer.
func (p *process) tell(line string) error {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	_, err := p.line()
	return err
}

// waitFor asks until ready says yes, the child ends, or 20 s are over.
func (p *process) waitFor(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // of those that say more than that the time is over
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("%s ended before %s\n%s", p.name, what, p.log.String())
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: %w\n%s", p.name, what, last, p.log.String())
		}
	}
}

// stop ends the child.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// cpu is the time that the child's threads have run, by the scheduler's
// nanoseconds: /proc/PID/stat counts in steps of 10 ms. What ended threads ran is
// not in it; neither Envoy nor Go ends threads while it serves.
func (p *process) cpu() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("CPU time of %s: no /proc/PID/task/*/schedstat (it needs Linux): %w", p.name, err)
	}
	var sum time.Duration
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("CPU time of %s: %w", p.name, err)
		}
		first, _, _ := bytes.Cut(b, []byte(" "))
		ns, err := strconv.ParseInt(string(first), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of %s: %w", p.name, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// rss is the child's resident memory in bytes.
func (p *process) rss() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("memory of %s: %w", p.name, err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("memory of %s: no VmRSS in /proc/PID/status", p.name)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

const tailLength = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - tailLength; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// tellJSON writes a value as one line to the child and awaits its answer.
func (p *process) tellJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return p.tell(string(line))
}

// output runs a command and returns what it prints.
func output(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var stderr tail
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = processAttributes()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), args[0], err, stderr.String())
	}
	return out, nil
}
