package store_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
	"patchbay.dev/registry/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// raw has what must not be lost: spaces, escapes, a large integer, HTML.
const raw = `{ "name":"a\u0062","inputSchema":{"type":"object"},"x":[12345678901234567890, "<é>"] }`

func servers(names ...string) []config.Server {
	out := make([]config.Server, len(names))
	for i, n := range names {
		out[i] = config.Server{Name: n, URL: "http://127.0.0.1:1/mcp?key=sesame", Headers: map[string]string{"X-Key": "sesame"}}
	}
	return out
}

func catalog() *registry.Catalog {
	return &registry.Catalog{
		Tools:      []registry.Item{{Name: "ab", Raw: []byte(raw)}},
		Prompts:    []registry.Item{{Name: "p", Raw: []byte(`{"name":"p"}`)}},
		Resources:  []registry.Item{{Name: "f:///a", Raw: []byte(`{"uri":"f:///a","name":"n"}`)}},
		Templates:  []registry.Item{{Name: "f:///{x}", Raw: []byte(`{"uriTemplate":"f:///{x}","name":"n"}`)}},
		ServerInfo: []byte(`{"name": "s"}`), Capabilities: []byte(`{}`), Instructions: "do",
	}
}

// open returns a registry with the servers, restored from dir, and its store.
func open(t *testing.T, dir string, of []config.Server) (*registry.Registry, *store.Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	r := registry.New(slog.New(slog.DiscardHandler))
	s, err := store.New(dir, r, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	for _, c := range of {
		r.Add(c)
	}
	s.Restore(of)
	r.Subscribe(s.Changed)
	return r, s, &log
}

// run runs the store until stop is called.
func run(t *testing.T, s *store.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// K13, D18: after a restart the names of a server that is down are taken.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "catalogs")
	r, s, _ := open(t, dir, servers("one", "two"))
	stop := run(t, s)
	facts := registry.Facts{Revision: "2025-06-18", Sessions: true, LostStatus: 400, Stream: true}
	r.SetReady("one", catalog(), facts)
	stop() // writes what is left

	info, err := os.Stat(filepath.Join(dir, "one.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(filepath.Join(dir, "one.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "sesame", "neither a URL nor a header")

	r, _, log := open(t, dir, servers("one", "two"))
	assert.Empty(t, log.String())
	e, ok := r.Snapshot().Tool("one_ab")
	require.True(t, ok)
	assert.Equal(t, raw, string(e.Definition))
	assert.Equal(t, registry.Connecting, e.Server.State)
	assert.Equal(t, facts, e.Server.Facts)
	assert.Equal(t, catalog(), e.Server.Info)
	assert.JSONEq(t, `{"tools":[]}`, string(r.Snapshot().Full().List(registry.Tools)), "taken, not listed")
	r.SetUnavailable("one", registry.ReasonUnreachable, "down")
	_, ok = r.Snapshot().Tool("one_ab")
	assert.True(t, ok)
}

func TestWritesSoon(t *testing.T) {
	dir := t.TempDir()
	r, s, _ := open(t, dir, servers("one", "two"))
	defer run(t, s)()
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	r.SetReady("one", catalog(), registry.Facts{})
	r.SetReady("two", catalog(), registry.Facts{})
	require.Eventually(t, func() bool { return exists("one.json") && exists("two.json") }, patience, 10*time.Millisecond)
	before, err := os.ReadFile(filepath.Join(dir, "two.json"))
	require.NoError(t, err)
	r.SetReady("two", &registry.Catalog{}, registry.Facts{})
	require.Eventually(t, func() bool {
		now, err := os.ReadFile(filepath.Join(dir, "two.json"))
		return err == nil && !bytes.Equal(before, now)
	}, patience, 10*time.Millisecond)
	r.Remove("one")
	require.Eventually(t, func() bool { return !exists("one.json") }, patience, 10*time.Millisecond)
	assert.True(t, exists("two.json"))
}

// A damaged file is reported once, ignored, and replaced by the next catalog.
func TestDamagedFiles(t *testing.T) {
	good := func() string {
		dir := t.TempDir()
		r, s, _ := open(t, dir, servers("one"))
		r.SetReady("one", catalog(), registry.Facts{})
		run(t, s)()
		text, err := os.ReadFile(filepath.Join(dir, "one.json"))
		require.NoError(t, err)
		return string(text)
	}()
	moved := servers("one")
	moved[0].URL = "http://127.0.0.1:2/mcp"
	for name, c := range map[string]struct {
		text, log string
		of        []config.Server
	}{
		"truncated":     {good[:len(good)/2], "is damaged", nil},
		"empty":         {"", "is damaged", nil},
		"not JSON":      {"\x00\xff", "is damaged", nil},
		"other type":    {`{"version":1,"tools":7}`, "is damaged", nil},
		"other version": {strings.Replace(good, `"version":1`, `"version":2`, 1), "version 2", nil},
		"other server":  {strings.Replace(good, `"one"`, `"two"`, 1), "of the server", nil},
		"other address": {good, "of another address", moved},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "one.json")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			of := c.of
			if of == nil {
				of = servers("one")
			}
			r, s, log := open(t, dir, of)
			assert.Contains(t, log.String(), c.log)
			assert.Equal(t, 1, strings.Count(log.String(), "\n"))
			_, ok := r.Snapshot().Tool("one_ab")
			assert.False(t, ok)
			r.SetReady("one", catalog(), registry.Facts{})
			run(t, s)()
			r, _, _ = open(t, dir, of)
			_, ok = r.Snapshot().Tool("one_ab")
			assert.True(t, ok, "replaced")
		})
	}
	t.Run("too large", func(t *testing.T) {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "one.json"))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(128<<20+1)) // sparse
		require.NoError(t, f.Close())
		_, _, log := open(t, dir, servers("one"))
		assert.Contains(t, log.String(), "larger than")
	})
}

// What a crash, or a server that was removed meanwhile, left is removed; what is
// not ours stays.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"gone.json", "one.json.tmp-123", "README"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	_, s, _ := open(t, dir, servers("one"))
	run(t, s)()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, "README", left[0].Name())
}
