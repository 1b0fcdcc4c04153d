package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What `make tools` installs.
const (
	everythingGo     = "../.tools/everything-server"
	suiteConformance = "conformance/node_modules"
)

// goEverything is the Go SDK's server for the conformance suite, with sessions.
func goEverything(t *testing.T) *program {
	t.Helper()
	return startProgram(t, nil, func(port string) []string {
		return []string{everythingGo, "-http=127.0.0.1:" + port, "-stateless=false"}
	})
}

// check is one of the conformance suite's, as it writes them to checks.json.
type check struct {
	ID          string          `json:"id"`
	Description string          `json:"description"`
	Status      string          `json:"status"` // SUCCESS, FAILURE, WARNING, INFO or SKIPPED
	Error       string          `json:"errorMessage"`
	Details     json.RawMessage `json:"details"`
}

// scenarioDir is how the suite names a scenario's directory: with a time behind.
var scenarioDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\dZ-]+$`)

// runConformance runs a suite against the endpoint and returns the checks of
// each scenario. The suite's exit code says nothing that they do not say.
func runConformance(t *testing.T, suite, url string, args ...string) map[string][]check {
	t.Helper()
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	argv := append([]string{
		filepath.Join(suiteConformance, suite, "dist", "index.js"), "server", "--url", url, "-o", out,
	}, args...)
	said, err := exec.CommandContext(ctx, "node", argv...).CombinedOutput()
	require.NoError(t, ctx.Err(), "%s", said)
	dirs, globErr := filepath.Glob(filepath.Join(out, "server-*", "checks.json"))
	require.NoError(t, globErr)
	require.NotEmpty(t, dirs, "%s; %v %s", installFirst, err, said)
	scenarios := map[string][]check{}
	for _, file := range dirs {
		name := scenarioDir.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		require.NotNil(t, name, file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var checks []check
		require.NoError(t, json.Unmarshal(text, &checks), file)
		scenarios[name[1]] = checks
	}
	assert.Len(t, scenarios, strings.Count(string(said), "=== Running scenario: "), "every scenario left its checks")
	return scenarios
}

func count(scenarios map[string][]check, status string) (n int) {
	for _, checks := range scenarios {
		for _, c := range checks {
			if c.Status == status {
				n++
			}
		}
	}
	return n
}

// passes tells whether a check holds. INFO does: a server may answer in JSON
// where the suite would have looked at SSE.
func passes(checks []check, id string) bool {
	for _, c := range checks {
		if c.ID == id {
			return c.Status == "SUCCESS" || c.Status == "INFO"
		}
	}
	return false
}

// The official conformance suite, both its release and the alpha that knows
// what each revision requires, on the whole path: no check fails, and what holds
// for the server holds for the gateway before it.
func TestConformance(t *testing.T) {
	server := goEverything(t)
	g := up(t, fmt.Sprintf("- {name: everything, url: 'http://%s/', prefix: ''}\n", server.addr()))
	for _, suite := range []struct {
		name string
		args []string
	}{
		{"conformance-0.1", []string{"--suite", "all"}},
		{"conformance-0.2", []string{"--requirements", "2025-11-25"}},
	} {
		t.Run(suite.name, func(t *testing.T) {
			direct := runConformance(t, suite.name, "http://"+server.addr()+"/", suite.args...)
			require.Zero(t, count(direct, "FAILURE"), "the server itself fails")
			got := runConformance(t, suite.name, g.URL(), suite.args...)
			for name, checks := range got {
				t.Run(name, func(t *testing.T) {
					for _, c := range checks {
						assert.NotEqual(t, "FAILURE", c.Status, "%s (%s): %s %s", c.ID, c.Description, c.Error, c.Details)
					}
					for _, c := range direct[name] {
						if c.Status == "SUCCESS" {
							assert.True(t, passes(checks, c.ID), "%s (%s) holds only without the gateway", c.ID, c.Description)
						}
					}
				})
			}
			for name := range direct {
				assert.Contains(t, got, name)
			}
			t.Logf("%d passed, %d failed, of the server itself %d and 0",
				count(got, "SUCCESS"), count(got, "FAILURE"), count(direct, "SUCCESS"))
		})
	}
}
