package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testEnv is an environment with a HOME and the given variables.
func testEnv(pairs ...string) Env {
	vars := map[string]string{"HOME": "/home/op"}
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func TestDefaults(t *testing.T) {
	c, warnings, err := Parse("/etc/patchbay/patchbay.yaml", []byte("servers:\n- {name: a, url: http://h/mcp}\n"), testEnv())
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, &Config{
		Listen: "127.0.0.1:8080", Admin: "127.0.0.1:8090", BodyLimit: 4 << 20, StateDir: "/home/op/.local/state/patchbay",
		Origins: []string{"http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"},
		Calls:   Calls{Direct: true},
		Sessions: Sessions{
			KeyFile: "/home/op/.local/state/patchbay/keys", Store: "memory",
			Lifetime: Duration(30 * 24 * time.Hour), IdleTimeout: Duration(30 * time.Minute),
		},
		Servers: []Server{{Name: "a", URL: "http://h/mcp", Poll: Duration(30 * time.Second), Way: WayAuto}},
	}, c)
	assert.Equal(t, "a_", c.Servers[0].ToolPrefix())

	fromNothing, err := Default(testEnv())
	require.NoError(t, err)
	c.Servers = nil
	assert.Equal(t, c, fromNothing)
}

func TestEveryKey(t *testing.T) {
	c, warnings, err := Parse("/etc/patchbay/patchbay.yaml", []byte(`
listen: ":9000"
admin: "[::1]:9001"
bodyLimit: 512KiB
pageSize: 50
origins: ["https://app.example", "http://localhost:6274", "http://[::1]:*", "vscode-webview://x"]
stateDir: state
sessions: {keyFile: k/seal, store: memory, lifetime: 24h, idleTimeout: 90s}
calls: {direct: false, log: calls.json}
servers:
- &first
  name: weather-2
  url: https://h.example:8443/${VERSION}/mcp?q=$${x}
  prefix: ""
  headers:
    Authorization: Bearer ${TOKEN}${TOKEN}
    X-Literal: $${TOKEN} $ $x $$
  timeout: 1m30s
  poll: 5s
  way: broker
  tls: {serverName: inner.example}
  group: g
  labels: {region: eu}
virtualServers:
- {name: ns/x, tools: [weather_*]}
`), testEnv("VERSION", "v1", "TOKEN", "a${b}"))
	require.NoError(t, err)
	empty := ""
	assert.Equal(t, &Config{
		Listen: "0.0.0.0:9000", Admin: "[::1]:9001", BodyLimit: 512 << 10, StateDir: "/etc/patchbay/state",
		PageSize: 50, Origins: []string{"https://app.example", "http://localhost:6274", "http://[::1]:*", "vscode-webview://x"},
		Sessions: Sessions{KeyFile: "/etc/patchbay/state/k/seal", Store: "memory", Lifetime: Duration(24 * time.Hour), IdleTimeout: Duration(90 * time.Second)},
		Calls:    Calls{Log: "/etc/patchbay/calls.json"},
		Servers: []Server{{
			Name: "weather-2", URL: "https://h.example:8443/v1/mcp?q=${x}", Prefix: &empty,
			Headers: map[string]string{"Authorization": "Bearer a${b}a${b}", "X-Literal": "${TOKEN} $ $x $$"},
			Timeout: Duration(90 * time.Second), Poll: Duration(5 * time.Second), Way: WayBroker,
			TLS: &ServerTLS{ServerName: "inner.example"}, Group: "g", Labels: map[string]string{"region": "eu"},
		}},
		VirtualServers: []VirtualServer{{Name: "ns/x", Tools: []string{"weather_*"}}},
	}, c)
	assert.Equal(t, []string{
		"/etc/patchbay/patchbay.yaml:22:10: servers[0].group: group has no effect yet",
		"/etc/patchbay/patchbay.yaml:23:11: servers[0].labels: labels has no effect yet",
		"/etc/patchbay/patchbay.yaml:25:1: virtualServers: virtualServers has no effect yet",
	}, texts(warnings))
}

func texts(warnings []Warning) []string {
	out := make([]string, len(warnings))
	for i, w := range warnings {
		out[i] = w.String()
	}
	return out
}

func TestStateDir(t *testing.T) {
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"systemd":      {[]string{"STATE_DIRECTORY", "/var/lib/a:/var/lib/b", "XDG_STATE_HOME", "/x"}, "/var/lib/a"},
		"xdg":          {[]string{"XDG_STATE_HOME", "/x"}, "/x/patchbay"},
		"xdg relative": {[]string{"XDG_STATE_HOME", "x"}, "/home/op/.local/state/patchbay"},
		"none":         {[]string{"HOME", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Default(testEnv(tc.env...))
			if tc.want == "" {
				require.ErrorContains(t, err, "set stateDir")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, c.StateDir)
		})
	}
}

func TestLoadReadsAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "patchbay.yaml")
	_, _, err := Load(path, testEnv())
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("servers:\n- {name: a, url: http://h/}\nnope: 1\n"), 0o600))
	_, _, err = Load(path, testEnv())
	var one *Error
	require.ErrorAs(t, err, &one)
	assert.Equal(t, path, one.File)
	assert.Equal(t, [2]int{3, 1}, [2]int{one.Line, one.Column})

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxFileBytes+1)), 0o600))
	_, _, err = Load(path, testEnv())
	require.EqualError(t, err, path+": the file is larger than 1 MiB")
}

func TestBooleans(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "True": true, "false": false, "FALSE": false} {
		c, _, err := Parse("f.yaml", []byte("calls: {direct: "+text+"}"), testEnv())
		require.NoError(t, err, text)
		assert.Equal(t, want, c.Calls.Direct, text)
	}
	c, _, err := Parse("f.json", []byte(`{"calls":{"direct":false}}`), testEnv())
	require.NoError(t, err)
	assert.False(t, c.Calls.Direct)
	_, _, err = Parse("f.yaml", []byte("calls: {direct: 'true'}"), testEnv())
	require.ErrorContains(t, err, "f.yaml:1:17: calls.direct: expected true or false, got a string")
}
