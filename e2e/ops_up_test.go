package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// envoyPID returns the process id of the Envoy that the gateway runs now.
func (g *gateway) envoyPID() int {
	g.t.Helper()
	children := g.children()
	require.Len(g.t, children, 1, "Envoy is the one child")
	return children[0]
}

// children are the child processes of the gateway, of all its threads.
func (g *gateway) children() (pids []int) {
	g.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", g.cmd.Process.Pid))
	require.NoError(g.t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(g.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitGone waits until no process has the id, or a dead one that nobody has
// asked after.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, patience, 10*time.Millisecond, "process %d lives on", pid)
}

func assertFree(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if assert.NoError(t, err) {
		_ = l.Close()
	}
}

// snippetOf returns what the banner says to paste into a client.
func snippetOf(t *testing.T, banner string) string {
	t.Helper()
	_, rest, found := strings.Cut(banner, "{")
	require.True(t, found, banner)
	end := strings.LastIndex(rest, "}")
	require.Positive(t, end)
	return "{" + rest[:end+1]
}

// The newcomer's way: no configuration, and the banner says all there is to do.
func TestOpsDemo(t *testing.T) {
	g := upDemo(t)
	banner := g.out.String()
	assert.Contains(t, banner, g.URL())
	assert.Contains(t, banner, "http://"+g.adminAddr()+"/metrics")
	assert.Regexp(t, `clock +ready +3`, banner)
	assert.Regexp(t, `notes +ready +4`, banner)
	for _, path := range []string{"/healthz", "/readyz"} {
		assert.Equal(t, "ok\n", g.adminGet(path))
	}
	assert.Empty(t, strings.Split(strings.TrimSpace(g.logs.String()), "\n")[3:], "a good start is quiet")

	snippet := snippetOf(t, banner)
	var parsed struct {
		Servers map[string]struct{ URL, Type string } `json:"mcpServers"`
	}
	require.NoError(t, json.Unmarshal([]byte(snippet), &parsed), snippet)
	assert.Equal(t, g.URL(), parsed.Servers["patchbay"].URL)

	second := &gateway{t: t, Port: freePort(t), Admin: freePort(t), Dir: t.TempDir()}
	file := writeFile(t, "client.json", snippet, 0o600)
	second.args = []string{
		"up", "-c", file, "--state-dir", filepath.Join(second.Dir, "state"), "--listen", second.addr(), "--admin", second.adminAddr(),
	}
	second.start()
	t.Cleanup(second.stop)
	assert.NotContains(t, second.logs.String(), "warning", "what one prints the other takes")
	c := second.client()
	assert.Contains(t, toolNames(t, c), "patchbay_clock_now")
	for range 2 {
		a := c.CallTool("patchbay_clock_now", `{}`)
		assert.Equal(t, http.StatusOK, a.Status, a.String())
	}
	assert.InDelta(t, 1, second.calls("direct"), 0)
}

// Ready means that every server was tried once, or that 5 s are over; requests
// wait for it.
func TestOpsReady(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	port, admin := freeAddress(t), freeAddress(t)
	fake := mcptest.New(t, nil)
	cfg := writeFile(t, "patchbay.yaml", fmt.Sprintf("listen: %s\nadmin: %s\nstateDir: state\nservers:\n%s- {name: silent, url: 'http://%s/mcp'}\n",
		port, admin, entry("s", fake), silent.Addr()), 0o600)
	g := &gateway{t: t, args: []string{"up", "-c", cfg}}
	started := time.Now()
	answered := make(chan *mcptest.Answer, 1)
	var unready int
	var wg sync.WaitGroup
	wg.Go(func() { // asks from the first moment on
		c := mcptest.NewClient(t, "http://"+port+"/mcp")
		for {
			if a := c.Call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`); a.Status != 0 {
				answered <- a
				return
			}
			if time.Since(started) > patience {
				close(answered)
				return
			}
		}
	})
	wg.Go(func() {
		for time.Since(started) < patience {
			status, err := readyStatus(context.Background(), admin)
			switch {
			case err != nil:
			case status == http.StatusServiceUnavailable:
				unready++
			default:
				assert.Equal(t, http.StatusOK, status)
				return
			}
		}
	})
	g.start()
	t.Cleanup(g.stop)
	wg.Wait()
	assert.Positive(t, unready, "503 came first")
	took := time.Since(started)
	assert.Greater(t, took, 4*time.Second)
	assert.Less(t, took, 9*time.Second)
	a := <-answered
	require.NotNil(t, a, "no answer")
	assert.Equal(t, http.StatusOK, a.Status, a.String())
	assert.Regexp(t, `silent +connecting +0`, g.out.String())
	assert.Regexp(t, `s +ready +2`, g.out.String())
}

// Ctrl-C and SIGTERM stop everything, also while streams are open and calls run
// on both ways.
func TestOpsStop(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			temp := ownTemp(t)
			release := make(chan struct{})
			hang := func(_ http.ResponseWriter, r *mcptest.Request) {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			fake, slow := mcptest.New(t, nil), mcptest.New(t, nil)
			t.Cleanup(func() { close(release) }) // before the servers are awaited
			g := up(t, entry("s", fake), entry("slow", slow, "way: broker"))
			c := g.client()
			s := c.Stream("")
			require.Equal(t, http.StatusOK, s.Status)
			require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
			fake.Handle("tools/call", hang)
			slow.Handle("tools/call", hang)
			fake.ResetRequests()
			var calls sync.WaitGroup
			for _, tool := range []string{"s_echo", "slow_echo"} {
				calls.Go(func() { assert.NotEqual(t, http.StatusOK, c.CallTool(tool, `{}`).Status) })
			}
			fake.Await(1, patience, mcptest.IsMethod("tools/call"))
			slow.Await(1, patience, mcptest.IsMethod("tools/call"))
			envoyPID := g.envoyPID()

			began := time.Now()
			require.NoError(t, g.cmd.Process.Signal(sig))
			<-g.done
			assert.Less(t, time.Since(began), 5*time.Second)
			t.Logf("stopped after %v", time.Since(began))
			assert.Zero(t, g.cmd.ProcessState.ExitCode(), g.logs.String())
			calls.Wait()
			for range s.Events { // ends
			}
			awaitGone(t, envoyPID)
			assertFree(t, g.addr())
			assertFree(t, g.adminAddr())
			assertEmpty(t, temp)
			assert.NotContains(t, g.logs.String(), "envoy |", "nobody wants to know how Envoy ends")
			assert.NotContains(t, g.logs.String(), "level=ERROR")
		})
	}
}

// An Envoy that dies is started again, and clients' sessions go on.
func TestOpsEnvoyDies(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	require.InDelta(t, 1, g.metric("patchbay_envoy_starts_total"), 0)
	for n := range 2 {
		old := g.envoyPID()
		require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
		died := time.Now()
		require.Eventually(t, func() bool {
			return c.CallTool("s_echo", `{}`).Status == http.StatusOK
		}, patience, 20*time.Millisecond)
		t.Logf("served again after %v", time.Since(died))
		assert.NotEqual(t, old, g.envoyPID())
		assert.InDelta(t, n+1, g.metric("patchbay_envoy_deaths_total"), 0)
		assert.InDelta(t, n+2, g.metric("patchbay_envoy_starts_total"), 0)
	}
	assert.Contains(t, g.logs.String(), "envoy died; starting it again")
	assert.Equal(t, 1, strings.Count(g.out.String(), "Patchbay is up."))
}

// Envoy does not outlive a gateway that was killed.
func TestOpsKilled(t *testing.T) {
	ownTemp(t) // it cannot tidy up
	g := up(t, entry("s", mcptest.New(t, nil)))
	pid := g.envoyPID()
	require.NoError(t, g.cmd.Process.Kill())
	<-g.done
	awaitGone(t, pid)
	assertFree(t, g.addr())
}

// Several gateways on one machine share the default directory for state, and
// none takes from another what it remembers.
func TestOpsSharedState(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("STATE_DIRECTORY", "")
	type one struct {
		flags []string
		url   string
		d     *daemon
	}
	var all [2]one
	start := func() { // at once
		for i := range all {
			all[i].d = daemonOf(t, binary, append([]string{"up"}, all[i].flags...)...)
		}
		for i := range all {
			require.Eventually(t, func() bool { return strings.Contains(all[i].d.logs.String(), "Ctrl-C") }, patience, 10*time.Millisecond)
		}
	}
	for i := range all {
		address := freeAddress(t)
		all[i].url, all[i].flags = "http://"+address+"/mcp", []string{"--listen", address, "--admin", freeAddress(t)}
	}
	start()
	keys, err := os.ReadFile(filepath.Join(home, ".local", "state", "patchbay", "keys"))
	require.NoError(t, err)
	assert.Len(t, strings.Split(strings.TrimSpace(string(keys)), "\n"), 3, "two lines of comment, one key")
	var kept, ended [2]*mcptest.Client
	for i := range all {
		kept[i], ended[i] = mcptest.NewClient(t, all[i].url), mcptest.NewClient(t, all[i].url)
		kept[i].Initialize()
		ended[i].Initialize()
		require.Equal(t, http.StatusNoContent, ended[i].Delete().Status)
	}
	for i := range all {
		all[i].d.end(syscall.SIGINT)
	}
	start()
	for i := range all {
		assert.Equal(t, http.StatusOK, kept[i].CallTool("clock_now", `{}`).Status)
		assert.Equal(t, http.StatusNotFound, ended[i].CallTool("clock_now", `{}`).Status)
	}
}
