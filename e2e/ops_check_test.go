package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// rows returns the table of check by server, cells split at two blanks.
func rows(t *testing.T, table string) map[string][]string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Equal(t, []string{"SERVER", "STATE", "REVISION", "TOOLS", "PROBLEM"}, strings.Fields(lines[0]))
	out := map[string][]string{}
	for _, line := range lines[1:] {
		var cells []string
		for cell := range strings.SplitSeq(line, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		out[cells[0]] = cells[1:]
	}
	return out
}

// check connects to each server, says what is the matter with it, and leaves no
// session behind.
func TestOpsCheck(t *testing.T) {
	intercept := func(status int, contentType, body string) *mcptest.Server {
		return mcptest.New(t, func(s *mcptest.Server) {
			s.Intercept = func(w http.ResponseWriter, _ *mcptest.Request) bool {
				w.Header().Set("Content-Type", contentType)
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
				return true
			}
		})
	}
	good := mcptest.New(t, nil)
	older := mcptest.New(t, func(s *mcptest.Server) { s.ProtocolVersion = "2025-03-26" })
	down := mcptest.New(t, nil)
	down.Stop()
	ancient := mcptest.New(t, func(s *mcptest.Server) { s.ProtocolVersion = "2024-11-05" })
	html := intercept(http.StatusOK, "text/html", "<html>a web site</html>")
	lost := intercept(http.StatusNotFound, "text/html", "<html>not found</html>")
	locked := intercept(http.StatusUnauthorized, "text/plain", "who are you")

	file := writeFile(t, "good.yaml", "servers:\n"+entry("good", good)+entry("older", older), 0o600)
	e := command(t, "check", file)
	assert.Zero(t, e.code, e.err)
	assert.Empty(t, e.err)
	assert.Equal(t, map[string][]string{"good": {"ready", "2025-11-25", "2"}, "older": {"ready", "2025-03-26", "2"}}, rows(t, e.out))
	assert.Zero(t, good.Sessioned(), "it leaves")

	file = writeFile(t, "bad.yaml", "servers:\n"+entry("good", good)+entry("down", down)+entry("ancient", ancient)+
		entry("html", html)+entry("lost", lost)+entry("locked", locked), 0o600)
	e = command(t, "check", "--config", file)
	assert.Equal(t, 1, e.code)
	assert.Equal(t, "patchbay: 5 of 6 servers have a problem\n", e.err)
	got := rows(t, e.out)
	assert.Equal(t, []string{"ready", "2025-11-25", "2"}, got["good"])
	for name, says := range map[string][]string{
		"down":    {"Unreachable", "connection refused"},
		"ancient": {"ProtocolVersionUnsupported", "2024-11-05", "2025-03-26"},
		"html":    {"ProtocolError", "text/html"},
		"lost":    {"ProtocolError", "404", "url"},
		"locked":  {"CredentialInvalid", "401", "headers"},
	} {
		require.Len(t, got[name], 4, name)
		assert.Equal(t, []string{"unavailable", "-", "-"}, got[name][:3], name)
		for _, s := range says {
			assert.Contains(t, got[name][3], s, name)
		}
	}

	file = writeFile(t, "desktop.json", `{"mcpServers": {"good": {"url": "`+good.URL()+`"}, "local": {"command": "npx", "args": ["x"]}}}`, 0o600)
	e = command(t, "check", file)
	assert.Zero(t, e.code, e.err)
	assert.Regexp(t, `^warning: \S+desktop\.json:1:\d+: mcpServers\.local: not supported yet: .*\(stdio\).*\n$`, e.err)
	assert.Len(t, rows(t, e.out), 1)
}

// The mcpServers JSON of a desktop client serves as it is.
func TestOpsDesktopConfiguration(t *testing.T) {
	t.Setenv("E2E_DESKTOP_TOKEN", "secret-7")
	fake := mcptest.New(t, nil)
	file := writeFile(t, "claude_desktop_config.json", `{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "My Server": {"type": "http", "url": "`+fake.URL()+`", "headers": {"Authorization": "Bearer ${E2E_DESKTOP_TOKEN}"}},
    "local": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}},
    "off": {"url": "http://127.0.0.1:1/mcp", "disabled": true}
  }
}`, 0o600)
	g := &gateway{t: t, Port: freePort(t), Admin: freePort(t)}
	g.args = []string{"up", "--config", file, "--listen", g.addr(), "--admin", g.adminAddr(), "--state-dir", t.TempDir()}
	g.start()
	t.Cleanup(g.stop)
	c := g.client()
	assert.Equal(t, []string{"my-server_echo", "my-server_add"}, toolNames(t, c))
	fake.ResetRequests()
	for range 2 {
		require.Equal(t, http.StatusOK, c.CallTool("my-server_echo", `{}`).Status)
	}
	assert.InDelta(t, 1, g.calls("direct"), 0)
	calls := fake.Method("tools/call")
	require.Len(t, calls, 2)
	for _, r := range calls {
		assert.Equal(t, "Bearer secret-7", r.Header.Get("Authorization"))
	}
	logs := g.logs.String()
	assert.Contains(t, logs, "mcpServers.local: not supported yet")
	assert.NotContains(t, logs, "secret-7")
	assert.NotContains(t, g.adminGet("/metrics"), "secret-7")
}
