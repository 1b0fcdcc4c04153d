package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/envoy"
	"patchbay.dev/internal/mcptest"
)

// daemon is a process that runs until it is told to end.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	logs lockedBuffer
}

// daemonOf starts a program; it ends with the test, if not before.
func daemonOf(t *testing.T, path string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.logs, &d.logs
	d.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10")
	require.NoError(t, d.cmd.Start())
	go func() {
		_ = d.cmd.Wait() // how it ended is looked at elsewhere
		close(d.done)
	}()
	t.Cleanup(func() {
		d.end(syscall.SIGTERM)
		logs := d.logs.String()
		assert.NotContains(t, logs, "DATA RACE")
		if t.Failed() {
			t.Logf("log of %s %v:\n%s", filepath.Base(path), args, logs)
		}
	})
	return d
}

// end signals the process and waits for its end.
func (d *daemon) end(sig syscall.Signal) {
	d.t.Helper()
	_ = d.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-d.done:
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		<-d.done
		d.t.Errorf("%v did not end at %v:\n%s", d.cmd.Args, sig, d.logs.String())
	}
}

// beside is a gateway beside an Envoy of the test's own.
type beside struct {
	t                *testing.T
	endpoint, admin  string
	flags            []string // of serve and of render bootstrap
	bootstrap, envoy string   // the file, and the binary
}

// newBeside writes the configuration and renders the bootstrap.
func newBeside(t *testing.T, sockets bool, servers ...string) *beside {
	t.Helper()
	b := &beside{t: t, endpoint: freeAddress(t), admin: freeAddress(t)}
	var err error
	b.envoy, err = envoy.Find()
	require.NoError(t, err)
	dir := ownTemp(t)
	cfg := writeFile(t, "patchbay.yaml", fmt.Sprintf("listen: %s\nadmin: %s\nstateDir: state\nservers:\n%s", b.endpoint, b.admin, strings.Join(servers, "")), 0o600)
	b.flags = []string{"--config", cfg}
	for _, part := range []string{"extproc", "broker", "xds"} {
		address := "unix://" + filepath.Join(dir, part)
		if !sockets {
			address = freeAddress(t)
		}
		b.flags = append(b.flags, "--"+part, address)
	}
	rendered := command(t, append([]string{"render", "bootstrap"}, b.flags...)...)
	require.Zero(t, rendered.code, rendered.err)
	require.Empty(t, rendered.err)
	b.bootstrap = writeFile(t, "envoy.yaml", rendered.out, 0o600)
	return b
}

func (b *beside) serve() *daemon {
	return daemonOf(b.t, binary, append([]string{"serve"}, b.flags...)...)
}

func (b *beside) runEnvoy() *daemon {
	return daemonOf(b.t, b.envoy, "-c", b.bootstrap, "--disable-hot-restart", "--concurrency", "1", "--log-level", "info")
}

// client waits until a session can be opened.
func (b *beside) client() *mcptest.Client {
	b.t.Helper()
	c := mcptest.NewClient(b.t, "http://"+b.endpoint+"/mcp")
	require.Eventually(b.t, func() bool {
		return c.Post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`).Status == http.StatusOK
	}, patience, 20*time.Millisecond)
	c.Initialize()
	return c
}

// serve stands beside an Envoy that somebody else runs, over TCP or sockets,
// whichever is started first.
func TestOpsServe(t *testing.T) {
	for _, sockets := range []bool{false, true} {
		for _, envoyFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("sockets=%v envoyFirst=%v", sockets, envoyFirst), func(t *testing.T) {
				fake := mcptest.New(t, nil)
				b := newBeside(t, sockets, entry("s", fake))
				var s *daemon
				if envoyFirst {
					e := b.runEnvoy()
					require.Eventually(t, func() bool {
						return strings.Contains(e.logs.String(), "initializing cds")
					}, patience, 10*time.Millisecond, "it has begun to look for the gateway")
					s = b.serve()
				} else {
					s = b.serve()
					require.Eventually(t, func() bool {
						status, _ := readyStatus(context.Background(), b.admin)
						return status == http.StatusOK
					}, patience, 10*time.Millisecond)
					b.runEnvoy()
				}
				c := b.client()
				stream := c.Stream("")
				require.Equal(t, http.StatusOK, stream.Status)
				for range 3 {
					a := c.CallTool("s_echo", `{}`)
					require.Equal(t, http.StatusOK, a.Status, a.String())
				}
				assert.Equal(t, []string{"s_echo", "s_add"}, toolNames(t, c))

				began := time.Now()
				s.end(syscall.SIGINT)
				assert.Less(t, time.Since(began), 5*time.Second)
				assert.Zero(t, s.cmd.ProcessState.ExitCode(), s.logs.String())
				assert.NotContains(t, s.logs.String(), "level=ERROR")
				for range stream.Events { // ends
				}
				assertEmpty(t, os.Getenv("TMPDIR")) // its sockets are there
				assertFree(t, b.admin)
			})
		}
	}
}

// A gateway that is killed and started again beside an Envoy that lives on: the
// requests in between are answered, and the sessions go on.
func TestOpsServeRestarts(t *testing.T) {
	for _, sockets := range []bool{false, true} {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("sockets=%v %v", sockets, sig), func(t *testing.T) {
				fake := mcptest.New(t, nil)
				b := newBeside(t, sockets, entry("s", fake))
				s := b.serve()
				b.runEnvoy()
				c := b.client()
				require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
				s.end(sig)
				for range 5 {
					a := c.CallTool("s_echo", `{}`)
					assert.Equal(t, http.StatusServiceUnavailable, a.Status, a.String())
					assert.NotZero(t, a.Code(), a.String())
				}
				fake.ResetRequests()
				b.serve()
				var up atomic.Int64 // when readyz said so, in ns since the start
				began := time.Now()
				go func() {
					for time.Since(began) < patience {
						if status, _ := readyStatus(context.Background(), b.admin); status == http.StatusOK {
							up.Store(int64(time.Since(began)))
							return
						}
					}
				}()
				var a *mcptest.Answer
				require.Eventually(t, func() bool {
					a = c.CallTool("s_echo", `{}`)
					return a.Status == http.StatusOK
				}, patience, 5*time.Millisecond)
				again := time.Since(began)
				require.Eventually(t, func() bool { return up.Load() != 0 }, patience, 5*time.Millisecond)
				t.Logf("first answer after %v, ready after %v", again, time.Duration(up.Load()))
				assert.Less(t, again, time.Duration(up.Load())+2*time.Second)
				assert.Len(t, fake.Method("tools/call"), 1, "what was refused had not run")
				assert.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
				assert.Equal(t, http.StatusOK, c.Stream("").Status)
			})
		}
	}
}
