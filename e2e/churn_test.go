package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// coming is a server that comes and goes. Its tools are those of its version,
// v7.a, v7.b and v7.c, so that a list tells from which versions it was made.
type coming struct {
	fake       *mcptest.Server
	configured bool
	running    bool
	version    atomic.Int64 // the latest that it may have shown
}

func (c *coming) publish() {
	v := c.version.Add(1)
	var tools []string
	for _, letter := range []string{"a", "b", "c"} {
		tools = append(tools, mcptest.Tool(fmt.Sprintf("v%d.%s", v, letter)))
	}
	c.fake.SetTools(mcptest.Page(tools...))
	c.fake.Notify(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

// churn is what the servers are like; the test's goroutine owns it.
type churn struct {
	t       *testing.T
	g       *gateway
	stay    *mcptest.Server
	servers []*coming
	random  *rand.Rand
	told    atomic.Pointer[string] // what a client knows that lists only when told
}

// configure writes the configuration, in a new order each time.
func (c *churn) configure() {
	c.t.Helper()
	entries := []string{entry("stay", c.stay)}
	for i, s := range c.servers {
		if s.configured {
			entries = append(entries, entry(fmt.Sprintf("s%d", i), s.fake))
		}
	}
	c.random.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	c.g.configure(entries...)
}

// step does one thing to one server at random.
func (c *churn) step() {
	c.t.Helper()
	s := c.servers[c.random.IntN(len(c.servers))]
	switch c.random.IntN(5) {
	case 0:
		s.configured = !s.configured
		c.configure()
	case 1:
		c.configure() // only another order
	case 2:
		if s.running {
			s.fake.Stop()
		} else {
			s.fake.Restart()
		}
		s.running = !s.running
	case 3:
		if s.running { // it restarts and forgets every session
			s.fake.Stop()
			s.fake.Forget()
			s.fake.Restart()
		}
	case 4:
		s.publish()
	}
}

// heal brings every server back.
func (c *churn) heal() {
	c.t.Helper()
	for _, s := range c.servers {
		if !s.running {
			s.fake.Restart()
		}
		s.running, s.configured = true, true
	}
	c.configure()
}

// expected is the list as it is to become, in the order of the names.
func (c *churn) expected() string {
	names := []string{"stay_add", "stay_echo"}
	for i, s := range c.servers {
		if !s.configured || !s.running {
			continue
		}
		for _, letter := range []string{"a", "b", "c"} {
			names = append(names, fmt.Sprintf("s%d_v%d.%s", i, s.version.Load(), letter))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// awaitTold waits until the client that lists only when it is told knows the list.
func (c *churn) awaitTold() {
	c.t.Helper()
	want := c.expected()
	ok := assert.Eventually(c.t, func() bool { return *c.told.Load() == want }, 2*patience, 5*time.Millisecond)
	require.True(c.t, ok, "a change that a client did not hear of: it knows\n%s\nand there is\n%s", *c.told.Load(), want)
}

// follow is a client that lists only when it is told.
func (c *churn) follow() {
	client := c.g.client()
	stream := client.Stream("")
	require.Eventually(c.t, func() bool { return c.g.metric("patchbay_streams") == 1 }, patience, 10*time.Millisecond)
	list := func() {
		names, err := namesIn(client.Call("tools/list", `{}`).Result())
		if err != nil {
			return // the stream's next event, or none, tells
		}
		slices.Sort(names)
		text := strings.Join(names, " ")
		c.told.Store(&text)
	}
	list()
	go func() { // ends with the stream, which ends with the test
		for ev := range stream.Events {
			if strings.Contains(ev.Data, toolsChanged) {
				list()
			}
		}
	}()
}

var churned = regexp.MustCompile(`^s(\d)_v(\d+)\.([abc])$`)

// trueState returns what is wrong with a list: each server must be in it with
// the whole of one version that it had, or not at all.
func (c *churn) trueState(names []string) string {
	if wrong := distinct("stay_echo", "stay_add")(names); wrong != "" {
		return wrong
	}
	letters, versions := map[string]string{}, map[string]string{}
	for _, name := range names {
		m := churned.FindStringSubmatch(name)
		if m == nil {
			if !strings.HasPrefix(name, "stay_") {
				return "nobody has " + name
			}
			continue
		}
		if v, seen := versions[m[1]]; seen && v != m[2] {
			return "two versions of s" + m[1]
		}
		versions[m[1]] = m[2]
		letters[m[1]] += m[3]
	}
	for server, all := range letters {
		i, _ := strconv.Atoi(server)
		v, _ := strconv.ParseInt(versions[server], 10, 64)
		if all != "abc" || v > c.servers[i].version.Load() {
			return "s" + server + " is not whole"
		}
	}
	return ""
}

// D13, M3, M12: ten servers are added, removed, restarted, changed and put into
// another order at random, under load. No request to a server that stays fails,
// each list is a true state, a client that lists only when told always knows the
// latest one, and nothing is left at the end.
func TestChurn(t *testing.T) {
	duration := 30 * time.Second
	if testing.Short() {
		duration = 10 * time.Second
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &churn{t: t, stay: mcptest.New(t, nil), random: rand.New(rand.NewPCG(seed, 0))}
	entries := []string{entry("stay", c.stay)}
	for i := range 10 {
		s := &coming{fake: mcptest.New(t, nil), configured: true, running: true}
		s.publish()
		c.servers = append(c.servers, s)
		entries = append(entries, entry(fmt.Sprintf("s%d", i), s.fake))
	}
	c.g = up(t, entries...)
	c.follow()
	c.awaitTold()
	before := c.g.metric("go_goroutines")

	l := startLoad(t, c.g, 3, c.trueState)
	steps := 0
	for end := time.Now().Add(duration); time.Now().Before(end); {
		for range 1 + c.random.IntN(3) {
			c.step()
			steps++
		}
		c.awaitTold()
	}
	c.heal()
	c.awaitTold()
	l.stop()
	t.Logf("%d steps", steps)
	assert.Greater(t, steps, 10)
	left := 0.0
	assert.Eventually(t, func() bool {
		left = c.g.metric("go_goroutines")
		return left <= before+10 // connections of the load that Envoy keeps
	}, 2*patience, 100*time.Millisecond)
	t.Logf("%v goroutines before, %v after", before, left)
}
