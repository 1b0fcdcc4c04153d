package router_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// What comes before the message (2025-11-25, Transports, "Security Warning" and
// "Sending Messages to the Server").
func TestHeadersBeforeTheMessage(t *testing.T) {
	f := newFixture(t)
	f.Origins = router.Origins{"https://app.example", "http://localhost:*"}
	_, token := f.session()
	for _, tc := range []struct {
		origin, accept, contentType string
		status                      int
		outcome                     string
	}{
		{"", "", "application/json", 200, "ok"},
		{"", "application/json, text/event-stream", "application/json; charset=utf-8", 200, "ok"},
		{"", "*/*", "application/json", 200, "ok"},
		{"https://app.example", "", "application/json", 200, "ok"},
		{"http://localhost", "", "application/json", 200, "ok"},
		{"http://localhost:5173", "", "application/json", 200, "ok"},
		{"http://localhost:", "", "application/json", 403, "origin"},
		{"http://localhost:1x", "", "application/json", 403, "origin"},
		{"http://localhost.evil.example", "", "application/json", 403, "origin"},
		{"https://app.example:8443", "", "application/json", 403, "origin"},
		{"http://app.example", "", "application/json", 403, "origin"},
		{"https://app.example,https://evil.example", "", "application/json", 403, "origin"},
		{"null", "", "application/json", 403, "origin"},
		{"", "application/json", "application/json", 406, "media_type"},
		{"", "text/event-stream", "application/json", 406, "media_type"},
		{"", "", "text/plain", 415, "media_type"},
		{"", "", "", 415, "media_type"},
		{"", "", "application/json,text/plain", 415, "media_type"},
	} {
		d, _ := f.decide(token, request("ping", ""), func(r *router.Request) {
			r.Origin, r.Accept, r.ContentType = tc.origin, tc.accept, tc.contentType
		})
		assert.Equal(t, tc.status, d.Status, "%+v", tc)
		assert.Equal(t, tc.outcome, d.Outcome(), "%+v", tc)
	}
	assert.False(t, router.Origins(nil).Allow("http://localhost"))
	assert.True(t, router.Origins{"*"}.Allow("https://any.example"))
}

// A client that can be asked something in the middle of a call hears it from the
// broker.
func TestClientThatCanBeAskedTakesTheBroker(t *testing.T) {
	f := newFixture(t)
	f.ready("s")
	srv, _ := f.registry.Snapshot().Server("s")
	for _, caps := range []mcp.Capabilities{mcp.CapElicitation, mcp.CapSampling, mcp.CapRoots} {
		s, token := f.table.New(session.Claims{Revision: 3, Capabilities: uint32(caps)})
		open(t, s, srv)
		d, _ := f.decide(token, call("s_echo"))
		assert.Equal(t, router.Broker, d.Way)
		assert.NotNil(t, d.Call.Server)
	}
}

// Subscriptions and the log level are the broker's, completions find their owner.
func TestRestOfTheEra(t *testing.T) {
	f := newFixture(t)
	f.ready("one")
	f.ready("down")
	_, token := f.session("one")
	f.registry.SetUnavailable("down", registry.ReasonUnreachable, "refused")
	for _, tc := range []struct {
		method, params string
		way            router.Way
		server, name   string
		code           int
	}{
		{"resources/subscribe", `{"uri":"one+file:///a"}`, router.Broker, "one", "file:///a", 0},
		{"resources/unsubscribe", `{"uri":"one+file:///a"}`, router.Broker, "one", "file:///a", 0},
		{"resources/unsubscribe", `{"uri":"down+file:///a"}`, router.Broker, "down", "file:///a", 0},
		{"resources/subscribe", `{"uri":"down+file:///a"}`, router.Reply, "", "", mcp.CodeUnavailable},
		{"resources/subscribe", `{"uri":"x:y"}`, router.Reply, "", "", mcp.CodeResourceNotFound},
		{"logging/setLevel", `{"level":"info"}`, router.Broker, "", "", 0},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"one_ask"}}`, router.Direct, "one", "ask", 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"one+note://{id}"}}`, router.Direct, "one", "note://{id}", 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"one+file:///a"}}`, router.Direct, "one", "file:///a", 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"x:y"}}`, router.Reply, "", "", mcp.CodeInvalidParams},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"no"}}`, router.Reply, "", "", mcp.CodeInvalidParams},
		{"completion/complete", `{"ref":{"type":"ref/tool","name":"one_echo"}}`, router.Reply, "", "", mcp.CodeInvalidParams},
		{"completion/complete", `{"ref":{"type":"ref/prompt","uri":"one_ask"}}`, router.Reply, "", "", mcp.CodeInvalidParams},
		{"completion/complete", ``, router.Reply, "", "", mcp.CodeInvalidParams},
	} {
		d, r := f.decide(token, request(tc.method, tc.params))
		assert.Equal(t, tc.way, d.Way, "%+v: %s", tc, d.Body)
		if tc.code != 0 {
			assert.Equal(t, tc.code, codeOf(t, d), "%+v", tc)
			continue
		}
		if tc.server == "" {
			assert.Nil(t, d.Call.Server)
			continue
		}
		require.NotNil(t, d.Call.Server, "%+v", tc)
		assert.Equal(t, tc.server, d.Call.Server.Config.Name)
		assert.Contains(t, string(d.Call.AppendBody(nil, r.Body)), `:"`+tc.name+`"}`)
	}
}

// Batches are of revision 2025-03-26 alone.
func TestBatches(t *testing.T) {
	f := newFixture(t)
	_, newer := f.session()
	_, older := f.table.New(session.Claims{Revision: 1})
	body := "[" + request("ping", "") + " ," + `{"jsonrpc":"2.0","method":"notifications/initialized"}]`
	d, r := f.decide(older, body)
	assert.Equal(t, router.Broker, d.Way)
	assert.Equal(t, mcp.MethodBatch, d.Method)
	require.Len(t, d.Batch, 2)
	assert.Equal(t, request("ping", ""), string(d.Batch[0].Of(r.Body)))
	for token, bodies := range map[string][]string{
		newer: {body},
		older: {"[]", "[1", "[" + long(5) + "]"},
	} {
		for _, body := range bodies {
			d, _ := f.decide(token, body)
			assert.Equal(t, router.Reply, d.Way, body)
			assert.Equal(t, http.StatusBadRequest, d.Status, body)
			assert.Empty(t, d.Batch)
		}
	}
	d, _ = f.decide("", body)
	assert.Equal(t, "no_session", d.Outcome())
}

// Pages hold everything once; a cursor that is none of ours is refused.
func TestPages(t *testing.T) {
	f := newFixture(t)
	f.ready("one")
	f.ready("two")
	f.PageSize = 3
	f.Seals = session.NewKeyring([32]byte{1})
	_, token := f.session()
	var seen []string
	cursor := ""
	for range 5 {
		params := ""
		if cursor != "" {
			params = `{"cursor":"` + cursor + `"}`
		}
		d, _ := f.decide(token, request("tools/list", params))
		require.Nil(t, d.Err)
		var m struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor string
			}
		}
		require.NoError(t, json.Unmarshal(whole(d), &m))
		for _, tool := range m.Result.Tools {
			seen = append(seen, tool.Name)
		}
		if cursor = m.Result.NextCursor; cursor == "" {
			break
		}
	}
	assert.Equal(t, []string{"one_add", "one_echo", "two_add", "two_echo"}, seen)
	d, _ := f.decide(token, request("tools/list", ""))
	var m struct{ Result struct{ NextCursor string } }
	require.NoError(t, json.Unmarshal(whole(d), &m))
	for method, cursor := range map[string]string{
		"prompts/list":   m.Result.NextCursor, // another list's
		"tools/list":     m.Result.NextCursor + "A",
		"resources/list": f.Seals.Seal(session.PurposeRecover, []byte("x")),
	} {
		d, _ := f.decide(token, request(method, `{"cursor":"`+cursor+`"}`))
		assert.Equal(t, mcp.CodeInvalidParams, codeOf(t, d), method)
	}
}
