package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// reloading is a gateway whose configuration changes under load.
type reloading struct {
	*gateway
	client *mcptest.Client
	stream *mcptest.GetStream
}

func startReloading(t *testing.T, servers ...string) *reloading {
	t.Helper()
	g := up(t, servers...)
	c := g.client()
	r := &reloading{gateway: g, client: c, stream: c.Stream("")}
	require.Eventually(t, func() bool { return g.metric("patchbay_streams") == 1 }, patience, 10*time.Millisecond)
	return r
}

// expect awaits that the client hears of a change, and then sees these tools.
func (r *reloading) expect(what string, names ...string) {
	r.t.Helper()
	r.stream.Await(toolsChanged, patience)
	require.Eventually(r.t, func() bool {
		return strings.Join(toolNames(r.t, r.client), " ") == strings.Join(names, " ")
	}, patience, 20*time.Millisecond, what)
}

func (r *reloading) answeredBy(tool, server string) {
	r.t.Helper()
	a := r.client.CallTool(tool, `{}`)
	require.Equal(r.t, http.StatusOK, a.Status, a.String())
	assert.Contains(r.t, string(a.Result()), server+" ran ")
}

func named(t *testing.T, name string) *mcptest.Server {
	t.Helper()
	return mcptest.New(t, func(s *mcptest.Server) {
		s.Name = name
		s.Tools = []string{mcptest.Page(mcptest.Tool("t"))}
	})
}

// D11, D12, K8, M2, M12: servers are added, changed, put into another order and
// removed by editing the file, without one failed request to a server that stays.
func TestReloadUnderLoad(t *testing.T) {
	stay, a, b, moved := mcptest.New(t, nil), named(t, "a"), named(t, "b"), named(t, "moved")
	st := entry("stay", stay)
	r := startReloading(t, st, entry("a", a))
	l := startLoad(t, r.gateway, 4, distinct("stay_echo", "stay_add"))

	r.configure(st, entry("a", a), entry("b", b))
	r.expect("added", "stay_echo", "stay_add", "a_t", "b_t")
	r.answeredBy("b_t", "b")
	r.configure(st, entry("a", a, "prefix: x."), entry("b", b))
	r.expect("another prefix", "stay_echo", "stay_add", "x.t", "b_t")
	r.answeredBy("x.t", "a")
	assert.Equal(t, "Tool not found: a_t", r.client.CallTool("a_t", `{}`).ErrorMessage())
	r.configure(st, entry("a", a, "prefix: ''"), entry("b", b, "prefix: ''"))
	r.expect("a conflict", "stay_echo", "stay_add", "t", "b_t")
	r.answeredBy("t", "a")
	r.configure(st, entry("b", b, "prefix: ''"), entry("a", a, "prefix: ''"))
	r.expect("another order", "stay_echo", "stay_add", "t", "a_t")
	r.answeredBy("t", "b")
	r.configure(st, entry("b", moved, "prefix: ''"))
	r.expect("removed", "stay_echo", "stay_add", "t")
	require.Eventually(t, func() bool {
		return strings.Contains(string(r.client.CallTool("t", `{}`).Result()), "moved ran")
	}, patience, 20*time.Millisecond, "another address")
	assert.Equal(t, "Tool not found: a_t", r.client.CallTool("a_t", `{}`).ErrorMessage())
	r.configure(st)
	r.expect("only one is left", "stay_echo", "stay_add")
	l.stop()
	before := r.calls("direct")
	assert.Equal(t, http.StatusOK, r.client.CallTool("stay_echo", `{}`).Status)
	assert.Equal(t, http.StatusOK, r.client.CallTool("stay_echo", `{}`).Status)
	assert.Positive(t, r.calls("direct")-before, "and its calls still go directly")
}

// A broken file leaves the last good state, says where the mistake is, and heals.
func TestReloadOfABrokenFile(t *testing.T) {
	stay, late := mcptest.New(t, nil), named(t, "late")
	r := startReloading(t, entry("stay", stay))
	l := startLoad(t, r.gateway, 2, distinct("stay_echo", "stay_add"))
	good := r.text(entry("stay", stay), entry("late", late))
	for _, broken := range []string{"servers: [\n", good + "- {name: B, url: 7, colour: red}\n", ""} {
		failures := r.metric("patchbay_config_reloads_total", `result="failure"`)
		r.replace(broken)
		require.Eventually(t, func() bool {
			return r.metric("patchbay_config_reloads_total", `result="failure"`) == failures+1
		}, patience, 20*time.Millisecond, broken)
		assert.Zero(t, r.metric("patchbay_config_last_reload_ok"))
		assert.Equal(t, []string{"stay_echo", "stay_add"}, toolNames(t, r.client))
	}
	for _, part := range []string{"patchbay.yaml:1:", "patchbay.yaml:7:", "colour", "the file is empty"} {
		assert.Contains(t, r.logs.String(), part)
	}
	r.replace(good)
	r.expect("fixed", "stay_echo", "stay_add", "late_t")
	assert.InDelta(t, 1, r.metric("patchbay_config_last_reload_ok"), 0)
	r.replace("bodyLimit: 1MiB\n" + good)
	require.Eventually(t, func() bool { return strings.Contains(r.logs.String(), "key=bodyLimit") }, patience, 20*time.Millisecond)
	l.stop()
}

// A mounted ConfigMap is swapped by a symbolic link; SIGHUP reloads at once.
func TestReloadOfAConfigMap(t *testing.T) {
	stay, late := mcptest.New(t, nil), named(t, "late")
	r := startReloading(t, entry("stay", stay))
	with, without := r.text(entry("stay", stay), entry("late", late)), r.text(entry("stay", stay))
	l := startLoad(t, r.gateway, 2, distinct("stay_echo", "stay_add"))
	swap := func(version, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(r.Dir, version), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(r.Dir, version, "patchbay.yaml"), []byte(text), 0o600))
		link := filepath.Join(r.Dir, "..data")
		require.NoError(t, os.Symlink(version, link+"_tmp"))
		require.NoError(t, os.Rename(link+"_tmp", link))
	}
	swap("..1", without)
	require.NoError(t, os.Symlink(filepath.Join("..data", "patchbay.yaml"), r.file()+".new"))
	require.NoError(t, os.Rename(r.file()+".new", r.file()))
	swap("..2", with)
	r.expect("swapped", "stay_echo", "stay_add", "late_t")
	swap("..3", without)
	r.expect("swapped again", "stay_echo", "stay_add")
	swap("..4", with)
	r.expect("and again", "stay_echo", "stay_add", "late_t")
	before := r.metric("patchbay_config_reloads_total", `result="success"`)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		return r.metric("patchbay_config_reloads_total", `result="success"`) == before+1
	}, patience, 20*time.Millisecond)
	l.stop()
}
