package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
)

// docs/operations.md lists every metric with its labels, and no others.
func TestManualHasEveryMetric(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay.yaml")
	require.NoError(t, os.WriteFile(path, []byte("stateDir: state\n"), 0o600))
	cfg, _, err := config.Load(path, os.LookupEnv)
	require.NoError(t, err)
	g, err := newGateway(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer g.close()
	g.reloading(&options{config: path}, false)

	// Gathering leaves out what has no series yet; descriptions are all there.
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		g.gatherer.Describe(descs)
	}()
	form := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	var served, documented []string
	runtime := map[string]bool{}
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		if family, _, _ := strings.Cut(m[1], "_"); family != "patchbay" {
			runtime[family+"_*"] = true
			continue
		}
		served = append(served, m[1]+"{"+strings.ReplaceAll(m[2], ",", ", ")+"}")
	}
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)^\\| `(patchbay_[a-z_]+)(\\{[a-z, ]*\\})?` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1]+"{"+strings.Trim(m[2], "{}")+"}")
	}
	assert.ElementsMatch(t, served, documented)
	assert.Equal(t, map[string]bool{"go_*": true, "process_*": true}, runtime)
	for family := range runtime {
		assert.Contains(t, string(text), "`"+family+"`")
	}
}
