package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
)

const (
	page    = "https://app.example"
	foreign = "https://evil.example"
	ping    = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
)

// send sends a request with these headers alone and returns the status and the
// headers of the answer.
func (g *gateway) send(method, path string, header ...string) (int, http.Header) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.addr()+path, http.NoBody)
	require.NoError(g.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(g.t, err)
	require.NoError(g.t, resp.Body.Close())
	return resp.StatusCode, resp.Header
}

// A page of a foreign origin gets 403 whatever it sends, and reaches nothing.
func TestForeignOrigins(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := upWith(t, "origins: ["+page+"]\n", entry("s", fake))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	fake.ResetRequests()
	for _, origin := range []string{foreign, "null", page + ".evil.example", page + ":1", "http://localhost:6274"} {
		for _, a := range []*mcptest.Answer{
			c.Post(ping, "Origin", origin),
			c.Post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_echo"}}`, "Origin", origin),
			c.Post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "Origin", origin, "Mcp-Session-Id", ""),
			c.Delete("Origin", origin),
		} {
			assert.Equal(t, http.StatusForbidden, a.Status, "%s: %s", origin, a.Body)
			assert.Empty(t, a.ID())
			assert.Equal(t, -32600, a.Code())
			assert.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
			assert.Empty(t, a.Header.Get("Mcp-Session-Id"))
		}
		status, _ := g.send(http.MethodGet, "/mcp", "Origin", origin, "Accept", "text/event-stream", "Mcp-Session-Id", c.Session)
		assert.Equal(t, http.StatusForbidden, status)
		status, header := g.send(http.MethodOptions, "/mcp", "Origin", origin, "Access-Control-Request-Method", "POST")
		assert.Equal(t, http.StatusForbidden, status)
		assert.Empty(t, header.Get("Access-Control-Allow-Origin"))
	}
	for _, r := range fake.Requests() {
		assert.Equal(t, "ping", r.Method, "nothing but the watcher's pings reached the backend")
	}
	assert.Equal(t, http.StatusOK, c.Post(ping).Status, "the session was not ended")
}

// Pages of a configured origin can read every kind of answer: made by ext_proc,
// the broker, a backend, and Envoy. The backend learns nothing of the page. (The
// 404 of other paths says nothing: Envoy's filter leaves direct responses alone,
// and clients take a probe that they may not read for one without an answer.)
func TestPagesOfConfiguredOrigins(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) {
		s.Intercept = func(w http.ResponseWriter, _ *mcptest.Request) bool {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			return false
		}
	})
	g := upWith(t, "origins: ["+page+"]\n", entry("s", fake))
	c := g.client()
	c.Header.Set("Origin", page)
	c.Header.Set("Sec-Fetch-Site", "cross-site")
	readable := func(h http.Header, what string) {
		t.Helper()
		assert.Equal(t, []string{page}, h.Values("Access-Control-Allow-Origin"), what)
		assert.Equal(t, []string{"Mcp-Session-Id, WWW-Authenticate"}, h.Values("Access-Control-Expose-Headers"), what)
		assert.Empty(t, h.Values("Access-Control-Allow-Credentials"), what)
	}
	readable(c.Initialize().Header, "initialize")
	readable(c.Post(ping).Header, "from memory")
	for range 2 {
		a := c.CallTool("s_echo", `{}`)
		require.Equal(t, http.StatusOK, a.Status)
		readable(a.Header, "call")
	}
	require.Positive(t, g.calls("direct"), "the second call is direct")
	readable(c.Post("hello").Header, "refused by ext_proc")
	fake.Forget()
	a := c.CallTool("s_echo", `{}`)
	require.Equal(t, http.StatusOK, a.Status)
	readable(a.Header, "recovered")
	for _, r := range fake.Requests() {
		assert.Empty(t, r.Header.Get("Origin"))
		assert.Empty(t, r.Header.Get("Sec-Fetch-Site"))
	}
	fake.Stop()
	a = c.CallTool("s_echo", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status)
	readable(a.Header, "unavailable")
	readable(c.Delete().Header, "DELETE")
}

// The preflight request of a page, and of one of this machine by default.
func TestPreflight(t *testing.T) {
	for origins, origin := range map[string]string{"": "http://localhost:6274", "origins: ['*']\n": foreign} {
		g := upWith(t, origins)
		status, header := g.send(http.MethodOptions, "/mcp", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,mcp-protocol-version")
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, origin, header.Get("Access-Control-Allow-Origin"))
		assert.Contains(t, header.Get("Access-Control-Allow-Headers"), "Authorization")
		assert.Contains(t, header.Get("Access-Control-Allow-Methods"), "DELETE")
		c := g.client()
		assert.Equal(t, http.StatusOK, c.Post(ping, "Origin", origin).Status)
	}
}

func TestMediaTypes(t *testing.T) {
	g := up(t, entry("s", mcptest.New(t, nil)))
	c := g.client()
	for _, tc := range []struct {
		header, value string
		status        int
	}{
		{"Content-Type", "application/json; charset=utf-8", 200},
		{"Content-Type", "text/plain", 415},
		{"Content-Type", "", 415},
		{"Accept", "*/*", 200},
		{"Accept", "text/event-stream, application/json", 200},
		{"Accept", "application/json", 406},
		{"Accept", "text/event-stream", 406},
	} {
		for _, body := range []string{ping, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_echo"}}`} {
			a := c.Post(body, tc.header, tc.value)
			assert.Equal(t, tc.status, a.Status, "%s: %q", tc.header, tc.value)
			if tc.status != http.StatusOK {
				assert.Equal(t, -32600, a.Code())
			}
		}
	}
}

func TestProtocolVersionHeader(t *testing.T) {
	g := up(t, entry("s", mcptest.New(t, nil)))
	for _, revision := range mcp.SupportedVersions() {
		c := mcptest.NewClient(t, g.URL())
		c.Revision = revision
		c.Initialize()
		require.Equal(t, revision, c.Revision)
		for version, status := range map[string]int{"": 200, revision: 200, "2025-06-18": 200, "2026-07-28": 400, "x": 400} {
			assert.Equal(t, status, c.Post(ping, "Mcp-Protocol-Version", version).Status, "%s, %q", revision, version)
		}
		status, _ := g.send(http.MethodGet, "/mcp", "Accept", "text/event-stream", "Mcp-Session-Id", c.Session, "Mcp-Protocol-Version", "x")
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Equal(t, http.StatusBadRequest, c.Delete("Mcp-Protocol-Version", "x").Status)
		assert.Equal(t, http.StatusNoContent, c.Delete().Status)
	}
	// A client of the next era asks first, and falls back at a 400 with -32000.
	c := mcptest.NewClient(t, g.URL())
	a := c.Post(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover")
	assert.Equal(t, http.StatusBadRequest, a.Status)
	assert.Equal(t, -32000, a.Code())
	assert.Equal(t, "0", string(a.ID()))
}

// What mcp-remote asks before it begins.
func TestEarlyProbes(t *testing.T) {
	g := up(t)
	status, _ := g.send(http.MethodGet, "/mcp", "Accept", "text/event-stream")
	assert.Equal(t, http.StatusBadRequest, status)
	for _, path := range []string{
		"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/mcp",
		"/.well-known/openid-configuration", "/mcp/.well-known/openid-configuration", "/", "/sse",
	} {
		status, _ = g.send(http.MethodGet, path)
		assert.Equal(t, http.StatusNotFound, status, path)
	}
}

// M1: all pages together are the list.
func TestPagedLists(t *testing.T) {
	one := mcptest.New(t, func(s *mcptest.Server) {
		s.Tools = []string{mcptest.Page(mcptest.Tool("c"), mcptest.Tool("a"), mcptest.Tool("b"))}
		s.Resources = []string{`[{"uri":"file:///a","name":"a"}]`}
	})
	two := mcptest.New(t, nil)
	g := upWith(t, "pageSize: 2\n", entry("one", one), entry("two", two))
	c := g.client()
	var names []string
	cursor := ""
	for pages := 1; ; pages++ {
		params := `{}`
		if cursor != "" {
			params = fmt.Sprintf(`{"cursor":%q}`, cursor)
		}
		a := c.Call("tools/list", params)
		var result struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
		require.NoError(t, json.Unmarshal(a.Result(), &result), "%s", a)
		assert.LessOrEqual(t, len(result.Tools), 2)
		for _, tool := range result.Tools {
			names = append(names, tool.Name)
		}
		if result.NextCursor == "" {
			assert.Equal(t, 3, pages)
			break
		}
		cursor = result.NextCursor
	}
	assert.Equal(t, []string{"one_a", "one_b", "one_c", "two_add", "two_echo"}, names)
	for _, bad := range []string{`"x"`, `7`, `{}`, `"` + cursor[:len(cursor)-2] + `"`, `"` + c.Session + `"`, `"` + strings.Repeat("A", 9999) + `"`} {
		a := c.Call("tools/list", `{"cursor":`+bad+`}`)
		assert.Equal(t, -32602, a.Code(), "%s", a)
		assert.Equal(t, http.StatusOK, a.Status)
	}
	a := c.Call("resources/list", fmt.Sprintf(`{"cursor":%q}`, cursor))
	assert.Equal(t, -32602, a.Code(), "a cursor of another list")
	assert.NotContains(t, cursor, "one")
	g.kill()
	g.start()
	assert.Zero(t, c.Call("tools/list", fmt.Sprintf(`{"cursor":%q}`, cursor)).Code(), "cursors outlive the gateway")
}

// A session of 2025-03-26 may send batches; others may not.
func TestBatches(t *testing.T) {
	jsonServer := mcptest.New(t, nil)
	sse := mcptest.New(t, func(s *mcptest.Server) { s.SSE, s.Prime = true, true })
	g := up(t, entry("s", jsonServer), entry("e", sse))
	c := mcptest.NewClient(t, g.URL())
	c.Revision = "2025-03-26"
	c.Initialize()
	call := func(id, tool string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"big":9007199254740993}}}`
	}
	const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

	a := c.Post("[" + strings.Join([]string{
		call("1", "s_echo"), initialized, `{"jsonrpc":"2.0","id":"two","method":"ping"}`, call("3", "none"), `7`, `[` + ping + `]`,
		`{"jsonrpc":"2.0","id":8,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}`,
	}, ",") + "]")
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	assert.Equal(t, "application/json", a.Header.Get("Content-Type"))
	assert.Empty(t, a.Header.Get("Mcp-Session-Id"))
	var answers []struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  struct{ Code int }
	}
	require.NoError(t, json.Unmarshal(a.Body, &answers), "%s", a.Body)
	require.Len(t, answers, 6, "one for each but the notification")
	assert.Contains(t, string(answers[0].Result), "9007199254740993")
	assert.Equal(t, `"two"`, string(answers[1].ID))
	assert.JSONEq(t, `{}`, string(answers[1].Result))
	for i, code := range map[int]int{2: -32602, 3: -32600, 4: -32600, 5: -32600} {
		assert.Equal(t, code, answers[i].Error.Code, "%d", i)
	}

	// One event stream makes the whole answer one.
	a = c.Post("[" + call("1", "s_echo") + "," + call("2", "e_echo") + "," + call("3", "e_echo") + `,{"jsonrpc":"2.0","id":4,"method":"ping"}]`)
	require.Equal(t, http.StatusOK, a.Status)
	assert.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
	require.Len(t, a.Events, 4, "%s", a.Body)
	seen := map[string]bool{}
	for _, e := range a.Events {
		var m struct{ ID, Result json.RawMessage }
		require.NoError(t, json.Unmarshal(e, &m))
		require.NotNil(t, m.Result, "%s", e)
		seen[string(m.ID)] = true
	}
	assert.Len(t, seen, 4)
	assert.NotContains(t, string(a.Body), "\nid:", "event ids of several streams on one would be wrong")

	a = c.Post("[" + initialized + "," + initialized + "]")
	assert.Equal(t, http.StatusAccepted, a.Status)
	assert.Empty(t, a.Body)

	jsonServer.ResetRequests()
	for body, says := range map[string]string{
		`[]`: "empty", "[" + strings.Repeat(call("1", "s_echo")+",", 50) + ping + "]": "at most 50",
	} {
		a = c.Post(body)
		assert.Equal(t, http.StatusBadRequest, a.Status)
		assert.Equal(t, -32600, a.Code())
		assert.Contains(t, a.ErrorMessage(), says)
	}
	newer := g.client()
	a = newer.Post("[" + call("1", "s_echo") + "]")
	assert.Equal(t, http.StatusBadRequest, a.Status)
	assert.Equal(t, -32600, a.Code())
	for _, r := range jsonServer.Requests() {
		assert.Equal(t, "ping", r.Method, "nothing of a refused batch is served")
	}
}

// M13: a completion goes to the server that has the prompt or the template, under
// the name that it knows.
func TestCompletionReferences(t *testing.T) {
	fake := mcptest.New(t, func(s *mcptest.Server) {
		s.Prompts = []string{`[{"name":"ask"}]`}
		s.Resources = []string{`[{"uri":"file:///a","name":"a"}]`}
		s.Templates = []string{`[{"uriTemplate":"note://{id}","name":"n"}]`}
	})
	g := up(t, entry("s", fake), entry("other", mcptest.New(t, nil)))
	c := g.client()
	for _, tc := range []struct{ ref, backend string }{
		{`{"type":"ref/prompt","name":"s_ask"}`, `"name":"ask"`},
		{`{"type":"ref/resource","uri":"s+note://{id}"}`, `"uri":"note://{id}"`},
		{`{"uri":"s+file:///a","type":"ref/resource"}`, `"uri":"file:///a"`},
	} {
		fake.ResetRequests()
		a := c.Call("completion/complete", `{"ref":`+tc.ref+`,"argument":{"name":"name","value":"o"}}`)
		assert.Contains(t, string(a.Result()), `"values":["one","two"]`, "%s", a)
		got := ""
		for _, r := range fake.Requests() {
			if r.Method == "completion/complete" {
				got += string(r.Params)
			}
		}
		assert.Contains(t, got, tc.backend)
		assert.Contains(t, got, `"argument":{"name":"name","value":"o"}`)
	}
	for _, bad := range []string{`{"type":"ref/prompt","name":"ask"}`, `{"type":"ref/prompt"}`, `{"type":"ref/resource","uri":"none://x"}`, `{"type":"x","name":"s_ask"}`, `7`} {
		assert.Equal(t, -32602, c.Call("completion/complete", `{"ref":`+bad+`,"argument":{"name":"n","value":""}}`).Code(), bad)
	}
	assert.Positive(t, g.metric("patchbay_requests_total", `method="completion/complete"`, `way="direct"`))
}
