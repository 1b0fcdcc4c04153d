package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// matrixClients are the clients that declare elicitation, sampling and roots,
// each taking the same steps.
var matrixClients = []struct {
	name string
	run  func(t *testing.T, url string, steps ...step) []stepResult
}{
	{"typescript 1", sdkProgram("MCP_SDK=1", "node", "clients/ts/client.mjs")},
	{"typescript 2", sdkProgram("MCP_SDK=2", "node", "clients/ts/client.mjs")},
	{"python 1", sdkProgram("MCP_SDK=1", pythonOfClients(), "clients/py/client.py")},
	{"python 2", sdkProgram("MCP_SDK=2", secondPython(), "clients/py/client.py")},
	{"go", func(t *testing.T, url string, steps ...step) []stepResult {
		t.Helper()
		return goSteps(t, &mcp.StreamableClientTransport{Endpoint: url}, steps...)
	}},
	{"mcp-remote", func(t *testing.T, url string, steps ...step) []stepResult {
		t.Helper()
		remote := exec.Command("node", mcpRemote, url, "--allow-http", "--transport", "http-only")
		remote.Env = append(os.Environ(), "MCP_REMOTE_CONFIG_DIR="+t.TempDir())
		logs := &lockedBuffer{}
		remote.Stderr = logs
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of mcp-remote:\n%s", logs.String())
			}
		})
		return goSteps(t, &mcp.CommandTransport{Command: remote}, steps...)
	}},
}

func sdkProgram(env string, argv ...string) func(*testing.T, string, ...step) []stepResult {
	return func(t *testing.T, url string, steps ...step) []stepResult {
		t.Helper()
		t.Setenv("MCP_CAPABLE", "1")
		return runSteps(t, env, argv, url, steps...)
	}
}

// expectation is a step and texts that its result, as compact JSON, contains. A
// text that begins with "!" must not be there. With code, the step ends in that
// error, and the texts are looked for in it.
type expectation struct {
	step
	code  int
	texts []string
}

// expect lets a client take the steps in one session and compares.
func expect(t *testing.T, run func(*testing.T, string, ...step) []stepResult, url string, all []expectation) {
	t.Helper()
	steps := make([]step, len(all))
	for i, e := range all {
		steps[i] = e.step
		if e.step["timeoutMs"] == nil {
			e.step["timeoutMs"] = 5000 // what hangs is to fail soon
		}
	}
	results := run(t, url, steps...)
	for i, e := range all {
		what := fmt.Sprintf("step %d, %v", i, e.step)
		got := results[i]
		said := compact(t, got.Result)
		if e.code != 0 {
			if assert.NotNil(t, got.Error, "%s gave %s", what, said) {
				assert.Equal(t, e.code, got.Error.Code, "%s: %s", what, got.Error.Message)
				said = got.Error.Message + " " + compact(t, got.Error.Data)
			}
		} else if got.Error != nil {
			t.Errorf("%s: %d %s %s", what, got.Error.Code, got.Error.Message, got.Error.Data)
			continue
		}
		for _, text := range e.texts {
			if unwanted, not := strings.CutPrefix(text, "!"); not {
				assert.NotContains(t, said, unwanted, what)
			} else {
				assert.Contains(t, said, text, what)
			}
		}
	}
}

// compact writes JSON as one line without spaces and without escapes that are
// not needed, so that all clients' results can be compared as text.
func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	if len(text) == 0 {
		return ""
	}
	var v any
	require.NoError(t, json.Unmarshal(text, &v), "%s", text)
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(v))
	return strings.TrimSpace(b.String())
}

// matrixGateway is a gateway in front of the servers of the matrix, each behind
// its prefix and beside the other.
func matrixGateway(t *testing.T) *gateway {
	t.Helper()
	every := startProgram(t, nil, func(string) []string { return []string{"node", everythingNode, "streamableHttp"} })
	python := startProgram(t, nil, func(port string) []string { return []string{pythonOfClients(), pythonServer, port} })
	return up(t,
		fmt.Sprintf("- {name: every, url: 'http://%s/mcp'}\n", every.addr()),
		fmt.Sprintf("- {name: py, url: 'http://%s/mcp'}\n", python.addr()))
}

// runMatrix lets every client take the steps, which are made anew for each.
func runMatrix(t *testing.T, url string, steps func() []expectation) {
	t.Helper()
	for _, c := range matrixClients {
		t.Run(c.name, func(t *testing.T) { expect(t, c.run, url, steps()) })
	}
}
