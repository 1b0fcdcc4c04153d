package upstream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcptest"
)

// Authorities are rotated under the same name: applying the same configuration
// again reads the file again, and changes nothing when its content is the same.
func TestApplyReadsTheCAFileAgain(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) { s.TLS = true })
	right := fake.CAPEM()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, right, 0o600))
	cfg := server("s", fake)
	cfg.TLS = &config.ServerTLS{CAFile: file}
	l := newLedger(t)
	m := NewManager(l, fast)
	defer m.Close()
	m.Apply([]config.Server{cfg})
	l.await(0, func(r report) bool { return r.what == "ready" })
	before, _ := m.Client("s")
	m.Apply([]config.Server{cfg})
	same, _ := m.Client("s")
	assert.Same(t, before, same)
	next := len(l.all())
	require.NoError(t, os.WriteFile(file, append([]byte("# rotated\n"), right...), 0o600))
	m.Apply([]config.Server{cfg})
	l.await(next, func(r report) bool { return r.what == "ready" })
	other, _ := m.Client("s")
	assert.NotSame(t, before, other)
}
