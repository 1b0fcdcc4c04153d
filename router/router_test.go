package router_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// The ways of a call. G8, K5.
// whole is the answer of a Reply.
func whole(d router.Decision) []byte { return bytes.Join(d.Body, nil) }

func TestWayOfACall(t *testing.T) {
	const python = "python-httpx/0.28.1"
	for name, tc := range map[string]struct {
		server string
		change func(*config.Server)
		before func(*fixture)
		client string
		want   router.Way
	}{
		"with its backend session":    {want: router.Direct},
		"before its first call":       {server: "none", want: router.Broker},
		"fragile client":              {client: python, want: router.Broker},
		"the library of its 2.x":      {client: "python-httpx2/1.0", want: router.Direct},
		"way: broker":                 {change: func(s *config.Server) { s.Way = config.WayBroker }, want: router.Broker},
		"Envoy does not know it yet":  {before: func(f *fixture) { f.routable = false; f.registry.SetRoutable(func(string) bool { return false }) }, want: router.Broker},
		"another address since then":  {before: func(f *fixture) { f.registry.Add(config.Server{Name: "s", URL: "http://127.0.0.1:2/s"}) }, want: router.Broker},
		"another path since then":     {before: func(f *fixture) { f.registry.Add(config.Server{Name: "s", URL: "http://127.0.0.1:1/x"}) }, want: router.Broker},
		"only its timeout is another": {before: func(f *fixture) { f.registry.Add(config.Server{Name: "s", URL: "http://127.0.0.1:1/s", Timeout: 5}) }, want: router.Direct},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.ready("s", func(s *config.Server) {
				if tc.change != nil {
					tc.change(s)
				}
			})
			var opened []string
			if tc.server == "" {
				opened = []string{"s"}
			}
			s, token := f.session(opened...)
			if tc.before != nil {
				tc.before(f)
			}
			d, r := f.decide(token, call("s_echo"), func(r *router.Request) {
				if tc.client != "" {
					r.UserAgent = tc.client
				}
			})
			assert.Equal(t, tc.want, d.Way, "%s", d.Body)
			assert.Nil(t, d.Err)
			assert.Equal(t, "tools/call", d.Method)
			require.NotNil(t, d.Call.Server)
			assert.Equal(t, "s", d.Call.Server.Config.Name)
			assert.Equal(t, "echo", d.Call.Name)
			assert.Equal(t, `"s_echo"`, string(d.Call.Target.Of(r.Body)))
			assert.Equal(t, s.Token(), d.Session.Token())
			if tc.want == router.Direct {
				assert.Equal(t, "at-s", d.Call.Backend.ID)
				assert.Equal(t, "routed", d.Outcome())
			} else {
				assert.Nil(t, d.Call.Backend)
			}
		})
	}
}

// Other requests for one backend. M10.
func TestTargets(t *testing.T) {
	f := newFixture(t)
	f.ready("one")
	f.ready("two", bare)
	_, token := f.session("one", "two")
	for _, tc := range []struct{ method, params, server, name, target string }{
		{"tools/call", `{"name":"one_add"}`, "one", "add", `"one_add"`},
		{"tools/call", `{"name":"add"}`, "two", "add", `"add"`},
		{"tools/call", `{"na\u006de":"one_\u0061dd"}`, "one", "add", `"one_\u0061dd"`},
		{"prompts/get", `{"name":"one_ask"}`, "one", "ask", `"one_ask"`},
		{"resources/read", `{"uri":"one+file:///a"}`, "one", "file:///a", `"one+file:///a"`},
		{"resources/read", `{"uri":"file:///a"}`, "two", "file:///a", `"file:///a"`},
		{"resources/read", `{"uri":"one+note://9"}`, "one", "note://9", `"one+note://9"`},
		{"resources/read", `{"uri":"one+any:thing"}`, "one", "any:thing", `"one+any:thing"`},
	} {
		d, r := f.decide(token, request(tc.method, tc.params))
		assert.Equal(t, router.Direct, d.Way, "%v: %s", tc, d.Body)
		require.NotNil(t, d.Call.Server, "%v", tc)
		assert.Equal(t, tc.server, d.Call.Server.Config.Name, "%v", tc)
		assert.Equal(t, tc.name, d.Call.Name)
		assert.Equal(t, tc.target, string(d.Call.Target.Of(r.Body)))
	}
}

// D3: lists and ping come from memory.
func TestRepliesFromMemory(t *testing.T) {
	f := newFixture(t)
	f.ready("one")
	_, token := f.session()
	view := f.registry.Snapshot().Full()
	for method, want := range map[string][]byte{
		"ping": []byte(`{}`), "tools/list": view.List(registry.Tools), "prompts/list": view.List(registry.Prompts),
		"resources/list": view.List(registry.Resources), "resources/templates/list": view.List(registry.Templates),
	} {
		for _, id := range []string{`7`, `"a\u0062"`, `-9007199254740993`} {
			d, _ := f.decide(token, strings.Replace(request(method, ""), "7", id, 1))
			assert.Equal(t, router.Reply, d.Way)
			assert.Equal(t, http.StatusOK, d.Status)
			assert.Equal(t, `{"jsonrpc":"2.0","id":`+id+`,"result":`+string(want)+`}`, string(whole(d)))
			assert.Equal(t, "ok", d.Outcome())
			assert.Equal(t, method, d.Method)
		}
	}
	for _, cursor := range []string{`""`, `null`} {
		d, _ := f.decide(token, request("tools/list", `{"cursor":`+cursor+`}`))
		assert.Nil(t, d.Err, "asks for the first page")
	}
	for _, cursor := range []string{`"made up"`, `5`, `{}`} {
		d, _ := f.decide(token, request("tools/list", `{"cursor":`+cursor+`}`))
		assert.Equal(t, mcp.CodeInvalidParams, codeOf(t, d))
	}
}

func codeOf(t *testing.T, d router.Decision) int {
	t.Helper()
	var m struct {
		Error struct{ Code int }
	}
	require.NoError(t, json.Unmarshal(whole(d), &m), "%s", d.Body)
	return m.Error.Code
}

// What the broker takes: everything that is no answer and no call.
func TestNotificationsResponsesAndInitializeGoToTheBroker(t *testing.T) {
	f := newFixture(t)
	f.ready("s")
	_, token := f.session("s")
	for body, label := range map[string]string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                   "notifications/initialized",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"x":1}}`:    "notifications/cancelled",
		`{"jsonrpc":"2.0","method":"initialize"}`:                                  "initialize",
		`{"jsonrpc":"2.0","method":"made/up"}`:                                     mcp.MethodOther,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"s_echo"}}`:       "tools/call",
		`{"jsonrpc":"2.0","id":0,"result":{}}`:                                     mcp.MethodResponse,
		`{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"m"},"method2":"no"}`: mcp.MethodResponse,
	} {
		d, _ := f.decide(token, body)
		assert.Equal(t, router.Broker, d.Way, body)
		assert.Equal(t, label, d.Method)
		assert.NotNil(t, d.Session)
		assert.Nil(t, d.Call.Server, "no backend gets it by itself")
		d, _ = f.decide("", body)
		assert.Equal(t, http.StatusBadRequest, d.Status, "a session is needed: %s", body)
	}
	for _, change := range []func(*router.Request){
		func(r *router.Request) { r.SessionID = "" },
		func(r *router.Request) { r.SessionID = "forged" },
		func(r *router.Request) { r.Version = "2026-07-28" },
	} {
		d, _ := f.decide(token, request("initialize", `{"protocolVersion":"2025-06-18"}`), change)
		assert.Equal(t, router.Broker, d.Way)
		assert.Equal(t, "initialize", d.Method)
		assert.Nil(t, d.Session, "it is about to open one")
	}
}

// Each error with its status, code, text, id and metric label. G9, K11, K13.
func TestErrors(t *testing.T) {
	f := newFixture(t)
	f.ready("one")
	f.ready("two")
	f.ready("down")
	f.ready("plain", bare)
	f.registry.SetUnavailable("down", registry.ReasonUnreachable, "refused")
	f.registry.Add(config.Server{Name: "new", URL: "http://127.0.0.1:1/"})
	_, token := f.session("one", "down")
	ended, endedToken := f.session()
	require.NoError(t, f.table.End(ended))

	for name, tc := range map[string]struct {
		body    string
		change  func(*router.Request)
		status  int
		code    int
		message string
		outcome mcp.Reason
		noID    bool
	}{
		"not JSON":         {body: `{"jsonrpc":"2.0","id":7,"method":"ping"`, status: 400, code: -32700, message: "ends too early", outcome: "parse_error"},
		"empty":            {body: "", status: 400, code: -32700, message: "empty", outcome: "parse_error", noID: true},
		"trailing bytes":   {body: call("one_echo") + "}", status: 400, code: -32700, message: "after the JSON value", outcome: "parse_error"},
		"duplicate":        {body: `{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}`, status: 400, code: -32700, message: "twice", outcome: "parse_error"},
		"too deep":         {body: request("ping", `{"a":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`}`), status: 400, code: -32700, message: "64 levels", outcome: "parse_error"},
		"no version":       {body: `{"id":7,"method":"ping"}`, status: 400, code: -32600, message: `"jsonrpc" must be "2.0"`, outcome: "invalid_request"},
		"id null":          {body: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, status: 400, code: -32600, message: `"id" must be`, outcome: "invalid_request", noID: true},
		"id fraction":      {body: `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, status: 400, code: -32600, message: `"id" must be`, outcome: "invalid_request", noID: true},
		"too large":        {body: request("ping", `{"x":"`+long(bodyLimit)+`"}`), status: 413, code: -32600, message: "over the limit of 65536 bytes", outcome: "too_large", noID: true},
		"no session":       {body: call("one_echo"), change: func(r *router.Request) { r.SessionID = "" }, status: 400, code: -32600, message: "send initialize first", outcome: "no_session"},
		"forged session":   {body: call("one_echo"), change: func(r *router.Request) { r.SessionID = "x" }, status: 404, code: -32001, message: "session not found: send initialize again", outcome: "session_unknown"},
		"foreign session":  {body: call("one_echo"), change: func(r *router.Request) { r.Principal = "eve" }, status: 404, code: -32001, message: "session not found", outcome: "session_unknown"},
		"ended session":    {body: call("one_echo"), change: func(r *router.Request) { r.SessionID = endedToken }, status: 404, code: -32001, message: "has ended", outcome: "session_unknown"},
		"2026":             {body: call("one_echo"), change: func(r *router.Request) { r.Version = "2026-07-28" }, status: 400, code: -32000, message: `"2026-07-28" (supported: 2025-03-26, 2025-06-18, 2025-11-25)`, outcome: "unsupported_version"},
		"virtual server":   {body: call("one_echo"), change: func(r *router.Request) { r.VirtualServer = "ns/x" }, status: 404, code: -32602, message: "virtual server not found: ns/x", outcome: "not_found"},
		"method":           {body: request("made/up", ""), status: 200, code: -32601, message: "Method not found: made/up", outcome: "method_unknown"},
		"tool":             {body: call("one_no"), status: 200, code: -32602, message: "Tool not found: one_no", outcome: "not_found"},
		"tool's own name":  {body: call("one"), status: 200, code: -32602, message: "Tool not found: one", outcome: "not_found"},
		"tool name empty":  {body: call(""), status: 200, code: -32602, message: "Tool not found: ", outcome: "not_found"},
		"tool case":        {body: call("ONE_echo"), status: 200, code: -32602, message: "Tool not found: ONE_echo", outcome: "not_found"},
		"long tool":        {body: call(long(9999)), status: 200, code: -32602, message: "Tool not found: " + long(200) + "…", outcome: "not_found"},
		"prompt":           {body: request("prompts/get", `{"name":"x"}`), status: 200, code: -32602, message: "Prompt not found: x", outcome: "not_found"},
		"resource":         {body: request("resources/read", `{"uri":"x:y"}`), status: 200, code: -32002, message: "Resource not found: x:y", outcome: "not_found"},
		"no name":          {body: request("tools/call", `{}`), status: 200, code: -32602, message: "params.name is missing", outcome: "invalid_params"},
		"name of a number": {body: request("tools/call", `{"name":5}`), status: 200, code: -32602, message: "params.name is missing", outcome: "invalid_params"},
		"no params":        {body: request("tools/call", ""), status: 200, code: -32602, message: "params.name is missing", outcome: "invalid_params"},
		"no uri":           {body: request("resources/read", `{"uri":[]}`), status: 200, code: -32602, message: "params.uri is missing", outcome: "invalid_params"},
		"several owners":   {body: request("resources/read", `{"uri":"note://5"}`), status: 200, code: -32602, message: "one+note://5, two+note://5", outcome: "invalid_params"},
		"unavailable":      {body: call("down_echo"), status: 503, code: -32003, message: `server "down" is unavailable`, outcome: "unavailable"},
		"down resource":    {body: request("resources/read", `{"uri":"down+file:///a"}`), status: 503, code: -32003, message: `server "down" is unavailable`, outcome: "unavailable"},
		"not tried yet":    {body: request("resources/read", `{"uri":"new+x:y"}`), status: 503, code: -32003, message: `server "new" is unavailable`, outcome: "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			change := tc.change
			if change == nil {
				change = func(*router.Request) {}
			}
			d, _ := f.decide(token, tc.body, change)
			assert.Equal(t, router.Reply, d.Way)
			assert.Equal(t, tc.status, d.Status)
			assert.Equal(t, tc.code, codeOf(t, d))
			assert.Contains(t, string(whole(d)), quoted(tc.message))
			require.NotNil(t, d.Err)
			assert.Equal(t, string(tc.outcome), d.Outcome())
			if tc.noID {
				assert.NotContains(t, string(whole(d)), `"id"`)
			} else {
				assert.Contains(t, string(whole(d)), `{"jsonrpc":"2.0","id":7,`)
			}

			d, _ = f.decide(token, tc.body, change, func(r *router.Request) { r.UserAgent = "python-httpx/0.27" })
			want := 200
			if tc.status == 404 {
				want = 404
			}
			assert.Equal(t, want, d.Status, "for a client that dies of other statuses")
		})
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

func TestExpiredSession(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	table := session.NewTable(session.Options{Now: func() time.Time { return now }, Lifetime: time.Hour})
	t.Cleanup(table.Close)
	f.Sessions = table
	_, token := table.New(session.Claims{})
	d, _ := f.decide(token, request("ping", ""))
	assert.Nil(t, d.Err)
	now = now.Add(time.Hour)
	d, _ = f.decide(token, request("ping", ""))
	assert.Equal(t, 404, d.Status)
	assert.Contains(t, string(whole(d)), "has expired")
	assert.Equal(t, 404, router.ErrSession(errors.New("any")).Status)
}

func TestVersionHeader(t *testing.T) {
	f := newFixture(t)
	_, token := f.session()
	for _, v := range []string{"", "2025-03-26", "2025-06-18", "2025-11-25"} {
		d, _ := f.decide(token, request("ping", ""), func(r *router.Request) { r.Version = v })
		assert.Nil(t, d.Err, "%q", v)
	}
	d, _ := f.decide(token, request("ping", ""), func(r *router.Request) { r.Version = long(9999) })
	assert.Less(t, len(whole(d)), 500, "what is not known is not repeated at length")
}

func TestTooLargeAndOverloaded(t *testing.T) {
	f := newFixture(t)
	d := f.TooLarge("node")
	assert.Equal(t, 413, d.Status)
	assert.Equal(t, "too_large", d.Outcome())
	d = f.TooLarge("python-httpx/0.28.1")
	assert.Equal(t, 200, d.Status)
	d = router.Overloaded("node")
	assert.Equal(t, 503, d.Status)
	assert.Equal(t, mcp.CodeServer, codeOf(t, d))
	assert.Equal(t, "overloaded", d.Outcome())
	assert.Equal(t, mcp.MethodOther, d.Method)
}

// D8-D10: whatever a call holds, only the name changes on its way.
func TestAppendBodyChangesNothingButTheName(t *testing.T) {
	f := newFixture(t)
	f.ready("s")
	f.ready("uri")
	_, token := f.session("s", "uri")
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		key, name, original := `"name"`, `"s_echo"`, "echo"
		method := "tools/call"
		if rnd.IntN(3) == 0 {
			method, key, name, original = "resources/read", `"uri"`, `"s+x:\"\u00e9<&>\ud83d\ude00\\"`, "x:\"é<&>😀\\"
		}
		before, after := randomMembers(rnd, "b"), randomMembers(rnd, "a")
		space := strings.Repeat(" ", rnd.IntN(3))
		body := fmt.Sprintf(`{%s"params":%s{%s%s:%s%s%s},"id":%d,"jsonrpc":"2.0","method":%q%s}`,
			randomMembers(rnd, "o"), space, before, key, space, name, prefixed(after), rnd.Int64()-rnd.Int64(), method, space)
		d, r := f.decide(token, body)
		require.Equal(t, router.Direct, d.Way, "%s\n%s", body, d.Body)
		got := d.Call.AppendBody(nil, r.Body)
		assert.Equal(t, string(got), string(d.Call.TakeBody(bytes.Clone(r.Body))))
		at := d.Call.Target
		require.Equal(t, name, body[at.Start:at.End])
		require.True(t, bytes.HasPrefix(got, []byte(body[:at.Start])), body)
		require.True(t, bytes.HasSuffix(got, []byte(body[at.End:])), body)
		var now string
		require.NoError(t, json.Unmarshal(got[at.Start:len(got)-(len(body)-at.End)], &now))
		require.Equal(t, original, now)
		var m jsonrpc.Message
		require.NoError(t, jsonrpc.Scan(got, &m))
		require.Equal(t, body, string(r.Body), "the client's bytes stay as they are")
	}
}

func prefixed(members string) string {
	if members == "" {
		return ""
	}
	return "," + strings.TrimSuffix(members, ",")
}

// randomMembers are members of an object, each with a comma behind it.
func randomMembers(rnd *rand.Rand, prefix string) string {
	var b strings.Builder
	for i := range rnd.IntN(4) {
		fmt.Fprintf(&b, `"%s%d\u0041":%s,`, prefix, i, randomValue(rnd, 3))
	}
	return b.String()
}

func randomValue(rnd *rand.Rand, depth int) string {
	values := []string{
		`1.0`, `-0`, `1E+2`, `9007199254740993`, `123456789012345678901234567890`, `true`, `null`, `"s_echo"`, `""`,
		`"\u00e9\/\b"`, `"é\ud83d\ude00"`, `{"name":"s_echo","uri":"x"}`, `[ ]`, `{ }`, `" {\"name\":\"s_echo\"} "`,
	}
	if depth > 0 && rnd.IntN(3) == 0 {
		return `[` + randomValue(rnd, depth-1) + ` , {"name":` + randomValue(rnd, depth-1) + `}]`
	}
	return values[rnd.IntN(len(values))]
}

func TestRecoveryRoundTrip(t *testing.T) {
	for _, want := range []router.Recovery{{}, {Token: "t"}, {Token: "t", Server: "s", Principal: "p|ü"}} {
		got, err := router.ParseRecovery(want.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{"", "a", "a\x00b", "a\x00b\x00c\x00d"} {
		_, err := router.ParseRecovery([]byte(bad))
		assert.Error(t, err, "%q", bad)
	}
}
