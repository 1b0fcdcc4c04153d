package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// upDemo starts `patchbay up` as a newcomer does, without a configuration.
func upDemo(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{t: t, Port: freePort(t), Admin: freePort(t), Dir: t.TempDir()}
	g.args = []string{
		"up", "--state-dir", filepath.Join(g.Dir, "state"),
		"--listen", g.addr(), "--admin", fmt.Sprintf("127.0.0.1:%d", g.Admin),
	}
	g.start()
	t.Cleanup(g.stop)
	return g
}

// step is one thing that an SDK client does, and its result.
type step map[string]any

type stepResult struct {
	Op     string          `json:"op"`
	MS     int             `json:"ms"` // how long the step took
	Result json.RawMessage `json:"result"`
	Error  *stepError      `json:"error"`
}

type stepError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// sdkClients are the official clients as programs that take steps; see clients/.
var sdkClients = []struct {
	name string
	env  string
	argv []string
}{
	{"typescript 1", "MCP_SDK=1", []string{"node", "clients/ts/client.mjs"}},
	{"typescript 2", "MCP_SDK=2", []string{"node", "clients/ts/client.mjs"}},
	{"python 1", "PYTHONUNBUFFERED=1", []string{pythonOfClients(), "clients/py/client.py"}},
	{"python 2", "PYTHONUNBUFFERED=1", []string{secondPython(), "clients/py/client.py"}},
}

func pythonOfClients() string {
	if p := os.Getenv("PATCHBAY_PYTHON"); p != "" {
		return p
	}
	return "../.tools/py/bin/python"
}

func secondPython() string {
	if p := os.Getenv("PATCHBAY_PYTHON2"); p != "" {
		return p
	}
	return "../.tools/py2/bin/python"
}

// runSteps runs an SDK client; every step must have an answer.
func runSteps(t *testing.T, env string, argv []string, url string, steps ...step) []stepResult {
	t.Helper()
	in, err := json.Marshal(steps)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], url, string(in))...)
	cmd.Env = append(os.Environ(), env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "`make tools` installs the clients; %s %s", out.String(), errs.String())
	var results []stepResult
	for line := range strings.Lines(out.String()) {
		var r stepResult
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		results = append(results, r)
	}
	require.Len(t, results, len(steps), out.String())
	return results
}

// The official SDK clients list and call the demo servers' tools, prompts and
// resources through Envoy.
func TestOfficialClients(t *testing.T) {
	g := upDemo(t)
	for _, c := range sdkClients {
		t.Run(c.name, func(t *testing.T) {
			before := g.calls("direct")
			r := runSteps(t, c.env, c.argv, g.URL(),
				step{"op": "connect"},
				step{"op": "ping"},
				step{"op": "listTools"},
				step{"op": "callTool", "name": "clock_now", "args": step{"timezone": "UTC"}},
				step{"op": "callTool", "name": "clock_now", "args": step{}},
				step{"op": "callTool", "name": "notes_add_note", "args": step{"title": c.name, "text": "hello from " + c.name}},
				step{"op": "listResourceTemplates"},
				step{"op": "listPrompts"},
				step{"op": "getPrompt", "name": "notes_summarize_notes", "args": step{"style": "short"}},
				step{"op": "callTool", "name": "notes_show_drafts", "args": step{"on": true}},
				step{"op": "waitToolListChanged"},
				step{"op": "listTools"},
				step{"op": "callTool", "name": "notes_show_drafts", "args": step{"on": false}},
				step{"op": "callTool", "name": "no_such_tool", "args": step{}},
			)
			for i, s := range r[:len(r)-1] {
				require.Nil(t, s.Error, "step %d %s: %+v", i, s.Op, s.Error)
			}
			assert.Contains(t, string(r[0].Result), `"patchbay"`)
			assert.Contains(t, string(r[2].Result), `"clock_now"`)
			assert.NotContains(t, string(r[2].Result), `"notes_draft_note"`)
			assert.Contains(t, string(r[6].Result), `notes+note:///{id}`)
			assert.Contains(t, string(r[8].Result), "hello from "+c.name)
			assert.Contains(t, string(r[11].Result), `"notes_draft_note"`)
			require.NotNil(t, r[13].Error)
			assert.Equal(t, -32602, r[13].Error.Code)
			assert.Contains(t, r[13].Error.Message, "Tool not found: no_such_tool")

			uri := awaitNote(t, g, c.name)
			read := runSteps(t, c.env, c.argv, g.URL(), step{"op": "listResources"}, step{"op": "readResource", "uri": uri})
			assert.Contains(t, string(read[0].Result), uri)
			require.Nil(t, read[1].Error)
			assert.Contains(t, string(read[1].Result), "hello from "+c.name)
			if c.name != "python 1" { // a client that takes the broker's way: see mcp.Fragile
				assert.Greater(t, g.calls("direct"), before)
			}
		})
	}
}

// awaitNote returns the URI of the note with the title as soon as it is listed:
// the gateway hears of it by list_changed.
func awaitNote(t *testing.T, g *gateway, title string) (uri string) {
	t.Helper()
	c := g.client()
	require.Eventually(t, func() bool {
		var list struct {
			Resources []struct{ URI, Title string } `json:"resources"`
		}
		if err := json.Unmarshal(c.Call("resources/list", `{}`).Result(), &list); err != nil {
			return false
		}
		for _, r := range list.Resources {
			if r.Title == title {
				uri = r.URI
			}
		}
		return uri != ""
	}, patience, 20*time.Millisecond)
	assert.True(t, strings.HasPrefix(uri, "notes+note:///"), uri)
	return uri
}

// The Go SDK's client, which looks for the newer era first and falls back.
func TestGoClient(t *testing.T) {
	g := upDemo(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	changed := make(chan struct{}, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: g.URL()}, nil)
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	tools, err := s.ListTools(ctx, nil)
	require.NoError(t, err)
	assert.Len(t, tools.Tools, 7)
	for range 2 {
		res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "clock_now"})
		require.NoError(t, err)
		assert.False(t, res.IsError)
	}
	params := &mcp.CallToolParams{Name: "clock_countdown", Arguments: map[string]any{"from": 2}}
	params.SetProgressToken("p")
	res, err := s.CallTool(ctx, params)
	require.NoError(t, err)
	assert.False(t, res.IsError, "%+v", res.Content)
	_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: "notes_show_drafts", Arguments: map[string]any{"on": true}})
	require.NoError(t, err)
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("no list_changed")
	}
}
