package admin

import (
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

const manual = "../../docs/operations.md"

// The manual lists every page of the admin port, and no others.
func TestManualHasEveryEndpoint(t *testing.T) {
	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	var documented, served []string
	for _, m := range regexp.MustCompile("(?m)^\\| `GET (/[^`]*)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	for _, e := range endpoints(options(nil)) {
		served = append(served, e.path)
	}
	assert.ElementsMatch(t, served, documented)
}

// The manual's examples are what is served.
func TestManualExamples(t *testing.T) {
	g := startGateway(t)
	g.Add(config.Server{Name: "weather", URL: "https://weather.example/mcp"})
	c := catalog("now")
	c.Tools = append(c.Tools, registry.Item{Name: "broken", Raw: []byte(`{"name":"broken","inputSchema":{}}`)})
	g.SetReady("weather", c, registry.Facts{Revision: "2025-06-18", Sessions: true, LostStatus: 404, Stream: true})
	g.SetRoutable(func(string) bool { return true })
	g.add("notes", "add", "find", "remove")
	g.SetUnavailable("notes", registry.ReasonUnreachable, "connection refused: check that the server runs and that its url is right")

	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	examples := regexp.MustCompile("(?s)\n`GET (/[^`]*)`:\n\n```json\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, examples, 2)
	since := regexp.MustCompile(`"since": ?"[^"]*"`)
	for _, e := range examples {
		status, body := get(t, g.address, e[1], "")
		require.Equal(t, http.StatusOK, status)
		const fixed = `"since":""`
		assert.JSONEq(t, since.ReplaceAllString(e[2], fixed), since.ReplaceAllString(body, fixed), e[1])
	}
}

// The manual says of every state and reason what to do.
func TestManualHasEveryReason(t *testing.T) {
	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	for _, s := range registry.States() {
		assert.Contains(t, string(text), "\n| `"+s.String()+"` |")
	}
	for _, r := range registry.Reasons() {
		assert.Contains(t, string(text), "\n| `"+string(r)+"` |")
	}
}
