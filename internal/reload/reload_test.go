package reload_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// fixture is a Reloader that runs on a file.
type fixture struct {
	t       *testing.T
	r       *reload.Reloader
	reg     *prometheus.Registry
	applied chan *config.Config
	log     lockedBuffer
}

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

// start runs a Reloader on the file at path, which is read now.
func start(t *testing.T, path string) *fixture {
	t.Helper()
	f := &fixture{t: t, reg: prometheus.NewRegistry(), applied: make(chan *config.Config, 16)}
	load := func() (*config.Config, []config.Warning, error) { return config.Load(path, os.LookupEnv) }
	started, _, err := load()
	require.NoError(t, err)
	f.r = reload.New(reload.Options{
		Path: path, Started: started, Load: load, Registerer: f.reg, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		Apply: func(c *config.Config) error { f.applied <- c; return nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return f
}

// expect awaits the application of a configuration with these servers.
func (f *fixture) expect(what string, names ...string) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case c := <-f.applied:
			var got []string
			for _, s := range c.Servers {
				got = append(got, s.Name)
			}
			if strings.Join(got, " ") == strings.Join(names, " ") {
				return
			}
		case <-deadline:
			require.FailNow(f.t, "not applied: "+what, f.log.String())
		}
	}
}

func (f *fixture) metric(name, label string) float64 {
	f.t.Helper()
	all, err := f.reg.Gather()
	require.NoError(f.t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(f.t, "no metric", name)
	return 0
}

func servers(names ...string) string {
	out := "stateDir: state\nservers:\n"
	for _, n := range names {
		out += "- {name: " + n + ", url: http://127.0.0.1:1/mcp}\n"
	}
	return out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// replace is an atomic rename, as good tools do it.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	require.NoError(t, os.Rename(path+".new", path))
}

func TestWaysToWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	write(t, path, servers("one"))
	f := start(t, path)
	write(t, path, servers("one", "two"))
	f.expect("written in place", "one", "two")
	replace(t, path, servers("two"))
	f.expect("renamed over", "two")
	replace(t, path, servers("three"))
	f.expect("renamed over again: another inode", "three")
	require.NoError(t, os.Rename(path, path+"~")) // vim with backupcopy=no
	write(t, path, servers("four"))
	f.expect("moved away and written anew", "four")
	require.NoError(t, os.Remove(path))
	require.Eventually(t, func() bool { return f.metric("patchbay_config_last_reload_ok", "") == 0 }, patience, 10*time.Millisecond)
	assert.Contains(t, f.log.String(), "configuration not reloaded")
	write(t, path, servers("five"))
	f.expect("removed and back", "five")
	assert.InDelta(t, 1, f.metric("patchbay_config_last_reload_ok", ""), 0)
}

// A mounted ConfigMap: file -> ..data/file, ..data -> a directory that is new
// for each version, and goes when the next has come.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "patchbay.yaml"), text)
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", servers("one"))
	path := filepath.Join(dir, "patchbay.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "patchbay.yaml"), path))
	outside := filepath.Join(t.TempDir(), "link") // a link elsewhere to all of it
	require.NoError(t, os.Symlink(dir, outside))
	f := start(t, filepath.Join(outside, "patchbay.yaml"))
	for i, name := range []string{"two", "three", "four"} {
		version("..v"+name, servers(name))
		if i > 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "..1")))
		}
		f.expect("version "+name, name)
	}
	other := t.TempDir()
	write(t, filepath.Join(other, "patchbay.yaml"), servers("other"))
	require.NoError(t, os.Symlink(other, outside+"2"))
	require.NoError(t, os.Rename(outside+"2", outside))
	f.expect("the outer link", "other")
}

// D18: a broken file changes nothing; each of its mistakes is a line of the log.
func TestBrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	write(t, path, servers("one"))
	f := start(t, path)
	good := f.metric("patchbay_config_last_success_timestamp_seconds", "")
	assert.Positive(t, good)
	replace(t, path, "stateDir: s\nbodyLimit: 1\nservers: [{name: X, url: http://h/}]\n")
	require.Eventually(t, func() bool { return f.metric("patchbay_config_reloads_total", "failure") == 1 }, patience, 10*time.Millisecond)
	assert.InDelta(t, 0, f.metric("patchbay_config_last_reload_ok", ""), 0)
	assert.Contains(t, f.log.String(), "patchbay.yaml:2:")
	assert.Contains(t, f.log.String(), "patchbay.yaml:3:")
	replace(t, path, "")
	require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "the file is empty") }, patience, 10*time.Millisecond)
	assert.Empty(t, f.applied)
	replace(t, path, servers("one"))
	f.expect("back to what was", "one")
	assert.InDelta(t, 1, f.metric("patchbay_config_last_reload_ok", ""), 0)
	assert.Greater(t, f.metric("patchbay_config_last_success_timestamp_seconds", ""), good)
	assert.InDelta(t, 1, f.metric("patchbay_config_reloads_total", "success"), 0)
}

func TestTriggerAndRestartKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	write(t, path, servers("one"))
	f := start(t, path)
	f.r.Trigger()
	f.expect("triggered, though nothing changed", "one")
	assert.NotContains(t, f.log.String(), "restart")
	replace(t, path, "listen: 127.0.0.1:1\nbodyLimit: 1MiB\nsessions: {lifetime: 1h}\n"+servers("two"))
	f.expect("the rest is in force", "two")
	for _, key := range []string{"listen", "bodyLimit", "sessions"} {
		assert.Contains(t, f.log.String(), "key="+key)
	}
	assert.NotContains(t, f.log.String(), "key=admin")
}

func TestCAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, authority(t))
	write(t, path, servers("one")) // names the CA only later
	f := start(t, path)
	replace(t, path, "stateDir: s\nservers: [{name: one, url: https://h/, tls: {caFile: "+ca+"}}]\n")
	f.expect("named", "one")
	replace(t, ca, authority(t))
	f.expect("rotated", "one")
}

// What changed between the first reading and the watching is not lost.
func TestChangedBeforeRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	write(t, path, servers("one"))
	old, _, err := config.Load(path, os.LookupEnv)
	require.NoError(t, err)
	write(t, path, servers("two"))
	applied := make(chan *config.Config, 1)
	r := reload.New(reload.Options{
		Path: path, Started: old, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Load:  func() (*config.Config, []config.Warning, error) { return config.Load(path, os.LookupEnv) },
		Apply: func(c *config.Config) error { applied <- c; return nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	c := <-applied
	assert.Equal(t, "two", c.Servers[0].Name)
	cancel()
	require.NoError(t, <-done)
}

// authority returns a certificate of a new authority, in PEM.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
