package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// load is clients that call one tool, and list the tools, as fast as they get
// answers, each on a connection and in a session of its own.
type load struct {
	t      *testing.T
	g      *gateway
	tool   string
	check  func(names []string) string // what is wrong with a list, or ""
	cancel context.CancelFunc
	done   sync.WaitGroup

	calls, lists atomic.Int64

	mu     sync.Mutex
	failed []string // guarded by mu
}

// startLoad starts n clients that call the tool; check looks at every list.
func startLoad(t *testing.T, g *gateway, n int, check func([]string) string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, g: g, tool: "stay_echo", check: check, cancel: cancel}
	for i := range n {
		c := g.client()
		l.done.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l.call(c, fmt.Sprintf(`{"client":%d,"round":%d}`, i, round))
				if round%5 == 0 {
					l.list(c)
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); l.done.Wait() })
	return l
}

func (l *load) call(c *mcptest.Client, args string) {
	a := c.CallTool(l.tool, args)
	l.calls.Add(1)
	if a.Status != http.StatusOK || a.Err != nil || !strings.Contains(string(a.Result()), strings.Trim(args, "{}")) {
		l.fail("call: %v", a)
	}
}

func (l *load) list(c *mcptest.Client) {
	a := c.Call("tools/list", `{}`)
	l.lists.Add(1)
	names, err := namesIn(a.Result())
	if a.Status != http.StatusOK || err != nil {
		l.fail("list: %v", a)
		return
	}
	if wrong := l.check(names); wrong != "" {
		l.fail("list: %s: %v", wrong, names)
	}
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) < 20 {
		l.failed = append(l.failed, fmt.Sprintf(format, args...))
	}
}

// stop ends the load, of which nothing may have failed.
func (l *load) stop() {
	l.t.Helper()
	l.cancel()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(l.t, l.failed)
	l.t.Logf("%d calls and %d lists", l.calls.Load(), l.lists.Load())
	assert.Greater(l.t, l.calls.Load(), int64(50), "it was no load")
}

// namesIn returns the names in the result of tools/list.
func namesIn(result json.RawMessage) ([]string, error) {
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(result, &list); err != nil {
		return nil, err
	}
	names := make([]string, len(list.Tools))
	for i := range list.Tools {
		names[i] = list.Tools[i].Name
	}
	return names, nil
}

// distinct returns what is wrong with a list that names something twice or lacks
// one of the names that must be there.
func distinct(must ...string) func([]string) string {
	return func(names []string) string {
		sorted := slices.Sorted(slices.Values(names))
		if len(slices.Compact(sorted)) != len(names) {
			return "a name is there twice"
		}
		for _, m := range must {
			if !slices.Contains(names, m) {
				return m + " is missing"
			}
		}
		return ""
	}
}

// file is the configuration of the gateway.
func (g *gateway) file() string { return filepath.Join(g.Dir, "patchbay.yaml") }

// text is a configuration with these servers, and the rest as it is.
func (g *gateway) text(servers ...string) string {
	g.t.Helper()
	now, err := os.ReadFile(g.file())
	require.NoError(g.t, err)
	top, _, _ := strings.Cut(string(now), "servers:")
	return top + "servers:\n" + strings.Join(servers, "")
}

// configure replaces the configuration by an atomic rename.
func (g *gateway) configure(servers ...string) { g.replace(g.text(servers...)) }

func (g *gateway) replace(text string) {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(g.file()+".new", []byte(text), 0o600))
	require.NoError(g.t, os.Rename(g.file()+".new", g.file()))
}
