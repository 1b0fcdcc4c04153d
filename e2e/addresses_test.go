package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// private is a program that runs another one with a hosts file of its own: a
// bind mount that nobody else sees.
type private struct {
	t     *testing.T
	hosts string
}

func newPrivate(t *testing.T) *private {
	t.Helper()
	p := &private{t: t, hosts: filepath.Join(t.TempDir(), "hosts")}
	p.set()
	line := append(p.via(), "true")
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Skipf("this system allows no mount namespaces: %v: %s", err, out)
	}
	return p
}

func (p *private) via() []string {
	return []string{"unshare", "--map-root-user", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, p.hosts}
}

// set makes these the addresses of multi.test.
func (p *private) set(addrs ...string) {
	p.t.Helper()
	text := "127.0.0.1 localhost\n"
	for _, a := range addrs {
		text += a + " multi.test\n"
	}
	// In place: the mount is of the file, not of its name.
	require.NoError(p.t, os.WriteFile(p.hosts, []byte(text), 0o600))
}

// pairOf starts a server on each of two addresses, same port.
func pairOf(t *testing.T) (one, two *mcptest.Server, port string) {
	t.Helper()
	var at string
	require.Eventually(t, func() bool { // until the port is free on both
		at = fmt.Sprint(freePort(t))
		l, err := net.Listen("tcp", "127.0.0.2:"+at)
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	}, patience, time.Millisecond)
	one = mcptest.New(t, func(s *mcptest.Server) { s.Listen = "127.0.0.1:" + at })
	two = mcptest.New(t, func(s *mcptest.Server) { s.Listen = "127.0.0.2:" + at })
	return one, two, at
}

// A server with two addresses, as DNS gives them for replicas: each session stays
// at the one that opened it, by both ways; those of a dead address go on at the
// other, each call once; and changed addresses are followed, here by the broker: that
// Envoy follows DNS is tried in package envoy.
func TestSeveralAddresses(t *testing.T) {
	p := newPrivate(t)
	p.set("127.0.0.1", "127.0.0.2")
	one, two, port := pairOf(t)
	ran := map[*mcptest.Server]*executed{one: countCalls(one), two: countCalls(two)}
	g := upVia(t, p.via(), "", "- {name: s, url: http://multi.test:"+port+mcptest.Path+"}\n")
	clients := make([]*mcptest.Client, 10)
	for i := range clients {
		clients[i] = g.client()
	}
	homes := map[int]*mcptest.Server{}
	round := func(name string) {
		t.Helper()
		for i, c := range clients {
			args := fmt.Sprintf(`{"n":"%s-%d"}`, name, i)
			a := c.CallTool("s_echo", args)
			require.Equal(t, http.StatusOK, a.Status, a.String())
			var at *mcptest.Server
			times := 0
			for s, e := range ran {
				if n := e.times(args); n > 0 {
					at, times = s, times+n
				}
			}
			assert.Equal(t, 1, times, args)
			if homes[i] == nil {
				homes[i] = at
			}
			assert.Same(t, homes[i], at, "%s left its address", args)
		}
	}
	count := func(s *mcptest.Server) (n int) {
		for _, h := range homes {
			if h == s {
				n++
			}
		}
		return n
	}
	round("first")                                        // by the broker, which opens the sessions
	for n := 0; count(one) == 0 || count(two) == 0; n++ { // one in 512 runs
		clients = append(clients, g.client())
		round(fmt.Sprint("more", n))
	}
	direct := g.calls("direct")
	for n := range 3 {
		round(fmt.Sprint("direct", n))
	}
	assert.InDelta(t, float64(3*len(clients)), g.calls("direct")-direct, 0)
	assert.Zero(t, g.calls("recovered"))

	// One address dies. Its sessions' next calls have no connection, go to the
	// broker and run at the other.
	moved := count(two)
	two.Stop()
	for i := range homes {
		homes[i] = one
	}
	opened := one.Initialized()
	round("dead")
	assert.InDelta(t, float64(moved), g.calls("recovered"), 0)
	assert.LessOrEqual(t, one.Initialized()-opened, moved+1, "one new session each, and the watcher's")
	round("after")
	assert.InDelta(t, float64(moved), g.calls("recovered"), 0)

	// The name now stands for a third address alone, and the others are gone.
	three := mcptest.New(t, func(s *mcptest.Server) { s.Listen = "127.0.0.3:" + port })
	ran[three] = countCalls(three)
	p.set("127.0.0.3")
	one.Stop()
	for i := range homes {
		homes[i] = three
	}
	for _, c := range clients { // the file is read every 5 s
		require.Eventually(t, func() bool { return c.CallTool("s_echo", `{"n":"wait"}`).Status == http.StatusOK }, patience, 100*time.Millisecond)
	}
	round("changed") // the broker knows the address, whether Envoy does or not
}
