package extproc_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

func call(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`

// one plays a request whose body is one chunk.
func (f *fixture) one(body string, header ...string) *stream {
	s := f.stream()
	s.headers(false, header...)
	s.body(body, true)
	return s
}

// settings are a header mutation's values by name, in the order they are set.
func settings(t *testing.T, m *extprocv3.HeaderMutation) (names []string, values map[string]string) {
	t.Helper()
	values = map[string]string{}
	for _, o := range m.GetSetHeaders() {
		assert.Equal(t, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, o.GetAppendAction())
		names = append(names, o.GetHeader().GetKey())
		values[o.GetHeader().GetKey()] = string(o.GetHeader().GetRawValue())
	}
	return names, values
}

// What Envoy is told of a direct call. K5; a backend sees neither the gateway's
// session id nor the client's credentials.
func TestDirectCall(t *testing.T) {
	f := newFixture(t)
	cfg, facts, b := plain()
	cfg.URL = "https://Example.COM:8443/a/mcp?k=v"
	token := f.ready(cfg, facts, b)
	s := f.one(call("s_echo", `{"n":9007199254740993}`), mcp.HeaderSessionID, token, "authorization", "Bearer theirs")
	h, body, _ := s.forwarded()
	assert.Equal(t, call("echo", `{"n":9007199254740993}`), string(body))

	common := h.GetRequestHeaders().GetResponse()
	assert.True(t, common.GetClearRouteCache(), "else the route of the broker stays")
	_, set := settings(t, common.GetHeaderMutation())
	srv, _ := f.registry.Snapshot().Server("s")
	assert.Equal(t, map[string]string{
		private.HeaderCluster: srv.Cluster, ":path": "/a/mcp?k=v", ":authority": "example.com:8443",
		"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25", "mcp-session-id": "backend",
	}, set)
	removed := common.GetHeaderMutation().GetRemoveHeaders()
	for _, name := range []string{
		"authorization", "cookie", "proxy-authorization", "mcp-session-id", "last-event-id",
		"x-mcp-virtualserver", "x-authorized-tools", "x-mcp-prefer",
	} {
		assert.Contains(t, removed, name)
	}
	meta := h.GetDynamicMetadata().AsMap()[private.Namespace].(map[string]any)
	sealed, err := f.keys.AppendOpen(nil, session.PurposeRecover, meta[private.KeyRecover].(string))
	require.NoError(t, err)
	rec, err := router.ParseRecovery(sealed)
	require.NoError(t, err)
	assert.Equal(t, router.Recovery{Token: token, Server: "s"}, rec)
	assert.Equal(t, `"a\u0062"`, meta[private.KeyID], "the raw id, for errors that Envoy writes")
	assert.Equal(t, "s", meta[private.KeyServer])
	_, err = s.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, f.ended())
	assert.Equal(t, []string{"tools/call direct routed"}, f.metrics.take())
	assert.NotContains(t, h.String(), "theirs")
}

// What depends on the server's settings and on what was learnt about it.
func TestDirectHeadersOfOtherServers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*config.Server, *registry.Facts, *session.Backend)
		header []string
		tool   string
		set    map[string]string
		absent []string
	}{
		"no session ids": {
			change: func(_ *config.Server, _ *registry.Facts, b *session.Backend) { b.ID = "" },
			absent: []string{mcp.HeaderSessionID, private.HeaderLost, mcp.HeaderName},
		},
		"lost is 400": {
			change: func(_ *config.Server, f *registry.Facts, _ *session.Backend) { f.LostStatus = 400 },
			set:    map[string]string{private.HeaderLost: "400"},
		},
		"lost is served": {
			change: func(_ *config.Server, f *registry.Facts, _ *session.Backend) { f.LostStatus = 0 },
			set:    map[string]string{private.HeaderLost: "0"},
		},
		"timeout": {
			change: func(s *config.Server, _ *registry.Facts, _ *session.Backend) {
				s.Timeout = config.Duration(1500 * time.Millisecond)
			},
			set: map[string]string{"x-envoy-upstream-rq-timeout-ms": "1500"},
		},
		"tiny timeout": { // 0 would be none
			change: func(s *config.Server, _ *registry.Facts, _ *session.Backend) {
				s.Timeout = config.Duration(time.Microsecond)
			},
			set: map[string]string{"x-envoy-upstream-rq-timeout-ms": "1"},
		},
		"older revision": {
			change: func(_ *config.Server, _ *registry.Facts, b *session.Backend) { b.Revision = "2025-06-18" },
			set:    map[string]string{mcp.HeaderProtocolVersion: "2025-06-18"},
		},
		"Mcp-Name of the client": {
			header: []string{"mcp-name", "s_echo", "mcp-method", "tools/call"},
			set:    map[string]string{mcp.HeaderName: "echo"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			cfg, facts, b := plain()
			if tc.change != nil {
				tc.change(&cfg, &facts, &b)
			}
			token := f.ready(cfg, facts, b)
			h, _, _ := f.one(call("s_echo", `{}`), append(tc.header, mcp.HeaderSessionID, token)...).forwarded()
			_, set := settings(t, h.GetRequestHeaders().GetResponse().GetHeaderMutation())
			for name, want := range tc.set {
				assert.Equal(t, want, set[name], name)
			}
			for _, name := range tc.absent {
				assert.NotContains(t, set, name)
			}
		})
	}
}

// A configured header wins over what the client sent and over ours: Envoy
// removes first, then sets, in order.
func TestConfiguredHeadersComeLast(t *testing.T) {
	f := newFixture(t)
	cfg, facts, b := plain()
	cfg.Headers = map[string]string{"Authorization": "Bearer ours", "accept": "special", "X-Key": "k"}
	token := f.ready(cfg, facts, b)
	h, _, _ := f.one(call("s_echo", `{}`), mcp.HeaderSessionID, token, "authorization", "Bearer theirs").forwarded()
	m := h.GetRequestHeaders().GetResponse().GetHeaderMutation()
	names, set := settings(t, m)
	assert.Equal(t, "Bearer ours", set["Authorization"])
	assert.Contains(t, m.GetRemoveHeaders(), "authorization")
	assert.Equal(t, "special", set["accept"])
	last := names[len(names)-3:]
	slices.Sort(last)
	assert.Equal(t, []string{"Authorization", "X-Key", "accept"}, last)
}

func TestBrokerWayPassesUnchanged(t *testing.T) {
	f := newFixture(t)
	h, body, _ := f.one(initialize).forwarded()
	assert.Equal(t, initialize, string(body))
	assert.Nil(t, h.GetRequestHeaders().GetResponse().GetHeaderMutation())
	assert.False(t, h.GetRequestHeaders().GetResponse().GetClearRouteCache())
	assert.Nil(t, h.GetDynamicMetadata())
	require.NoError(t, f.ended())
	assert.Empty(t, f.metrics.take(), "the broker counts it")
}

func TestReplies(t *testing.T) {
	f := newFixture(t)
	token := f.ready(plain())
	for _, tc := range []struct {
		body   string
		header []string
		status int
		want   string
		count  string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil, 200, `"result":{}`, "ping reply ok"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 200, `"name":"s_echo"`, "tools/list reply ok"},
		{call("no", `{}`), nil, 200, "Tool not found: no", "tools/call reply not_found"},
		{call("s_echo", `{}`), []string{mcp.HeaderSessionID, ""}, 400, "send initialize first", "tools/call reply no_session"},
		{call("s_echo", `{}`), []string{mcp.HeaderSessionID, "x"}, 404, "session not found", "tools/call reply session_unknown"},
		{call("s_echo", `{}`), []string{mcp.HeaderVirtualServer, "n/x"}, 404, "virtual server", "tools/call reply not_found"},
		{call("s_echo", `{}`), []string{"content-type", "text/plain"}, 415, "Content-Type: application/json", "other reply media_type"},
		{call("s_echo", `{}`), []string{"origin", "http://localhost:1", "origin", "https://evil.example"}, 403, "evil.example", "other reply origin"},
		{`{`, nil, 400, "Parse error", "other reply parse_error"},
		{`{`, []string{"user-agent", "python-httpx/0.28.1"}, 200, "Parse error", "other reply parse_error"},
	} {
		s := f.one(tc.body, append([]string{mcp.HeaderSessionID, token}, tc.header...)...)
		r := s.immediate()
		assert.EqualValues(t, tc.status, r.GetStatus().GetCode(), tc.body)
		assert.Contains(t, string(r.GetBody()), tc.want)
		_, set := settings(t, r.GetHeaders())
		assert.Equal(t, map[string]string{"content-type": "application/json"}, set)
		require.NoError(t, f.ended())
		assert.Equal(t, []string{tc.count}, f.metrics.take())
	}
	s := f.stream()
	s.headers(true, mcp.HeaderSessionID, token)
	assert.Contains(t, string(s.immediate().GetBody()), "the body is empty", "a POST without a body")
}

// BenchmarkExchange is one request through gRPC on a Unix socket, both ends in
// this process.
func BenchmarkExchange(b *testing.B) {
	f := newFixture(b)
	token := f.ready(plain())
	for _, bc := range []struct{ name, body string }{
		{"call", call("s_echo", `{"text":"`+strings.Repeat("x", 64)+`"}`)},
		{"call64KiB", call("s_echo", `{"text":"`+strings.Repeat("x", 64<<10)+`"}`)},
		{"ping", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := f.one(bc.body, mcp.HeaderSessionID, token)
				for {
					if _, err := s.Recv(); err != nil {
						require.ErrorIs(b, err, io.EOF)
						break
					}
				}
				s.cancel()
			}
		})
	}
}
