package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// G9: each kind of bad input gets its status and code, with the id where
// one can be found, and reaches no backend.
func TestBadInput(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	call := func(name, args string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":` + name + `,"arguments":` + args + `}}`
	}
	for name, tc := range map[string]struct {
		body         string
		status, code int
		id           string
		says         string
	}{
		"empty":              {"", 400, -32700, "", "empty"},
		"blank":              {"  \n", 400, -32700, "", "empty"},
		"not JSON":           {"hello", 400, -32700, "", ""},
		"cut":                {call(`"s_echo"`, `{`)[:80], 400, -32700, "7", ""},
		"trailing":           {call(`"s_echo"`, `{}`) + "x", 400, -32700, "7", ""},
		"two values":         {call(`"s_echo"`, `{}`) + call(`"s_echo"`, `{}`), 400, -32700, "7", ""},
		"NUL behind":         {call(`"s_echo"`, `{}`) + "\x00", 400, -32700, "7", ""},
		"duplicate key":      {`{"jsonrpc":"2.0","id":7,"method":"tools/call","method":"ping","params":{"name":"s_echo"}}`, 400, -32700, "7", "twice"},
		"duplicate name":     {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s_echo","na\u006de":"s_add"}}`, 400, -32700, "7", "twice"},
		"duplicate argument": {call(`"s_echo"`, `{"a":1,"a":2}`), 400, -32700, "7", "twice"},
		"too deep":           {call(`"s_echo"`, strings.Repeat(`{"a":`, 70)+`1`+strings.Repeat(`}`, 70)), 400, -32700, "7", "64"},
		"deep bomb":          {strings.Repeat("[", 100_000), 400, -32700, "", ""},
		"invalid UTF-8":      {call(`"s_echo"`, "{\"a\":\"\xff\"}"), 400, -32700, "7", ""},
		"lone surrogate":     {call(`"s_echo"`, `{"a":"\ud800"}`), 400, -32700, "7", ""},
		"array":              {`[` + call(`"s_echo"`, `{}`) + `]`, 400, -32600, "", "batch"},
		"string":             {`"x"`, 400, -32600, "", ""},
		"no jsonrpc":         {`{"id":7,"method":"ping"}`, 400, -32600, "7", "jsonrpc"},
		"jsonrpc 1.0":        {`{"jsonrpc":"1.0","id":7,"method":"ping"}`, 400, -32600, "7", "jsonrpc"},
		"no method":          {`{"jsonrpc":"2.0","id":7}`, 400, -32600, "7", "method"},
		"method is a number": {`{"jsonrpc":"2.0","id":7,"method":1}`, 400, -32600, "7", "method"},
		"id null":            {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, -32600, "", "id"},
		"id fraction":        {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, -32600, "", "id"},
		"id exponent":        {`{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, 400, -32600, "", "id"},
		"id object":          {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, -32600, "", "id"},
		"id boolean":         {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, 400, -32600, "", "id"},
		"params array":       {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["s_echo"]}`, 400, -32600, "7", "params"},
		"unknown method":     {`{"jsonrpc":"2.0","id":7,"method":"tools/cal"}`, 200, -32601, "7", "tools/cal"},
		"method in capitals": {`{"jsonrpc":"2.0","id":7,"method":"Tools/Call","params":{"name":"s_echo"}}`, 200, -32601, "7", ""},
		"unknown tool":       {call(`"no_such"`, `{}`), 200, -32602, "7", "Tool not found: no_such"},
		"backend's own name": {call(`"echo"`, `{}`), 200, -32602, "7", "Tool not found: echo"},
		"long name":          {call(`"`+strings.Repeat("n", 1<<20)+`"`, `{}`), 200, -32602, "7", "Tool not found: nnn"},
		"no name":            {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`, 200, -32602, "7", "params.name"},
		"no params":          {`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, 200, -32602, "7", "params.name"},
		"name is a number":   {call(`1`, `{}`), 200, -32602, "7", "params.name"},
		"unknown resource":   {`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"x://y"}}`, 200, -32002, "7", "x://y"},
		"unknown prompt":     {`{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"p"}}`, 200, -32602, "7", "Prompt not found: p"},
		"foreign cursor":     {`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"abc"}}`, 200, -32602, "7", "cursor"},
		"too large":          {call(`"s_echo"`, `{"x":"`+strings.Repeat("x", 5<<20)+`"}`), 413, -32600, "", "4194304"},
	} {
		t.Run(name, func(t *testing.T) {
			fake.ResetRequests()
			a := c.Post(tc.body)
			require.NoError(t, a.Err)
			assert.Equal(t, tc.status, a.Status, "%.300s", a.Body)
			assert.Equal(t, tc.code, a.Code(), "%.300s", a.Body)
			assert.Equal(t, tc.id, string(a.ID()))
			assert.Contains(t, strings.ToLower(a.ErrorMessage()), strings.ToLower(tc.says))
			assert.Less(t, len(a.Body), 2000, "an error does not repeat what was sent")
			assert.Equal(t, "application/json", a.Header.Get("Content-Type"))
			for _, r := range fake.Requests() {
				assert.Equal(t, "ping", r.Method, "nothing but the watcher's pings reached the backend")
			}
		})
	}
	a := c.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "Mcp-Session-Id", "")
	assert.Equal(t, http.StatusBadRequest, a.Status)
	assert.Equal(t, -32600, a.Code())
	a = c.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "Mcp-Protocol-Version", "1999-01-01")
	assert.Equal(t, http.StatusBadRequest, a.Status)
	assert.Equal(t, -32000, a.Code())
	a = c.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "X-Mcp-Virtualserver", "ns/none")
	assert.Equal(t, http.StatusNotFound, a.Status, "never the full list")
	assert.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status, "and the session works as before")
}
