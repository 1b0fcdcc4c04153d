package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// patience is how long a test waits for what must come. It is generous: the
// machines are slow and shared, and a wait ends with the event.
const patience = 20 * time.Second

// binary is the built command; TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "patchbay-e2e-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "patchbay")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "patchbay.dev/cmd/patchbay")...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(fmt.Sprintf("building the command: %v", err))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// gateway is a running `patchbay up`.
type gateway struct {
	// Port and Admin stay the same over restarts, and so does Dir, which holds
	// the configuration and the state.
	Port, Admin int
	Dir         string

	t    *testing.T
	via  []string // a program that runs the command, with its arguments; nil for none
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	out  lockedBuffer
	logs lockedBuffer
}

// lockedBuffer is written by a process and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// entry is one server of a configuration; more are further keys, such as
// "prefix: ”".
func entry(name string, s *mcptest.Server, more ...string) string {
	return "- {" + strings.Join(append([]string{"name: " + name, "url: " + s.URL()}, more...), ", ") + "}\n"
}

// up starts a gateway in front of servers made by entry and waits until it
// serves. It ends with the test, and must then have neither raced nor panicked.
func up(t *testing.T, servers ...string) *gateway {
	t.Helper()
	return upWith(t, "", servers...)
}

// upWith is up with further top-level configuration.
func upWith(t *testing.T, top string, servers ...string) *gateway {
	t.Helper()
	return upVia(t, nil, top, servers...)
}

// upVia is upWith, run by another program.
func upVia(t *testing.T, via []string, top string, servers ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, Port: freePort(t), Admin: freePort(t), Dir: t.TempDir(), via: via}
	cfg := fmt.Sprintf("listen: 127.0.0.1:%d\nadmin: 127.0.0.1:%d\nstateDir: %s\n%s", g.Port, g.Admin, filepath.Join(g.Dir, "state"), top)
	if len(servers) > 0 {
		cfg += "servers:\n" + strings.Join(servers, "")
	}
	path := filepath.Join(g.Dir, "patchbay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(cfg), 0o600))
	g.args = []string{"up", "--config", path}
	g.start()
	t.Cleanup(g.stop)
	return g
}

// start starts the process and waits until it says that it serves.
func (g *gateway) start() {
	g.t.Helper()
	g.out, g.logs = lockedBuffer{}, lockedBuffer{}
	line := slices.Concat(g.via, []string{binary}, g.args)
	g.cmd = exec.Command(line[0], line[1:]...)
	g.cmd.Stdout, g.cmd.Stderr = &g.out, &g.logs
	g.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10") // else each end of a race build takes 1 s
	require.NoError(g.t, g.cmd.Start())
	done := make(chan struct{})
	g.done = done
	go func() {
		_ = g.cmd.Wait() // how it ended is looked at elsewhere
		close(done)
	}()
	require.Eventually(g.t, func() bool {
		select {
		case <-g.done:
			return true
		default:
			return strings.Contains(g.out.String(), "Patchbay is up.")
		}
	}, patience, 10*time.Millisecond, "it does not come up")
	require.Contains(g.t, g.out.String(), "Patchbay is up.", "it ended: %s", g.logs.String())
}

// kill ends the process as kill -9 does.
func (g *gateway) kill() {
	require.NoError(g.t, g.cmd.Process.Kill())
	<-g.done
	// Envoy dies with it; the port is free a moment later.
	require.Eventually(g.t, func() bool {
		l, err := net.Listen("tcp", g.addr())
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	}, patience, 10*time.Millisecond, "something still listens")
}

// stop ends the process as Ctrl-C does.
func (g *gateway) stop() {
	select {
	case <-g.done:
	default:
		_ = g.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-g.done:
		case <-time.After(patience):
			_ = g.cmd.Process.Signal(syscall.SIGQUIT) // prints the goroutines
			<-g.done
			g.t.Errorf("it did not stop:\n%s", g.logs.String())
		}
	}
	logs := g.logs.String()
	if strings.Contains(logs, "DATA RACE") || strings.Contains(logs, "panic") || g.t.Failed() {
		g.t.Logf("log of the gateway:\n%s", logs)
	}
	if strings.Contains(logs, "DATA RACE") {
		g.t.Error("the gateway raced")
	}
}

func (g *gateway) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(g.Port)) }

// URL is the MCP endpoint.
func (g *gateway) URL() string { return "http://" + g.addr() + "/mcp" }

// client returns a client with an open session.
func (g *gateway) client() *mcptest.Client {
	g.t.Helper()
	c := mcptest.NewClient(g.t, g.URL())
	c.Initialize()
	return c
}

// adminGet returns the body of an admin page.
func (g *gateway) adminGet(path string) string {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", g.Admin, path), nil)
	require.NoError(g.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return string(body)
}

// metric returns the sum of all series of a metric whose labels contain all of
// the given `name="value"` pairs.
func (g *gateway) metric(name string, labels ...string) float64 {
	g.t.Helper()
	sum := 0.0
	line := regexp.MustCompile(`(?m)^` + name + `(\{[^}]*\})? (\S+)$`)
next:
	for _, m := range line.FindAllStringSubmatch(g.adminGet("/metrics"), -1) {
		for _, l := range labels {
			if !strings.Contains(m[1], l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(m[2], 64)
		require.NoError(g.t, err)
		sum += v
	}
	return sum
}

// calls returns how many tools/call took the way.
func (g *gateway) calls(way string) float64 {
	g.t.Helper()
	return g.metric("patchbay_requests_total", `method="tools/call"`, `way="`+way+`"`)
}

// takenPorts are those that freePort has given.
var takenPorts sync.Map

// freePort returns a port that nothing listens on. It is below those that the
// kernel gives to outgoing connections, or one of the many that run beside this
// test could have taken it before the gateway does.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000) //nolint:gosec // any will do
		if _, taken := takenPorts.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		return port
	}
	require.FailNow(t, "no port is free")
	return 0
}
