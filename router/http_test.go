package router_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

func TestOrigins(t *testing.T) {
	o := router.Origins{"https://app.example", "http://localhost:*", "http://[::1]:*", "https://b.example:8443"}
	for origin, want := range map[string]bool{
		"https://app.example":           true,
		"https://app.example:443":       false,
		"https://app.example.evil":      false,
		"http://app.example":            false,
		"http://localhost":              true,
		"http://localhost:1":            true,
		"http://localhost:":             false,
		"http://localhost:1.evil":       false,
		"http://localhost.evil":         false,
		"http://localhost:1@evil":       false,
		"https://localhost:1":           false,
		"http://[::1]:65535":            true,
		"https://b.example:8443":        true,
		"null":                          false,
		"https://app.example,http://x":  false,
		"http://x, https://app.example": false,
	} {
		assert.Equal(t, want, o.Allow(origin), origin)
	}
	assert.True(t, router.Origins{"*"}.Allow("null"))
	assert.False(t, router.Origins(nil).Allow("http://localhost"))
}

// What comes before the message is refused before anything is read of it.
func TestBeforeTheMessage(t *testing.T) {
	f := newFixture(t)
	f.Origins = router.Origins{"https://app.example"}
	_, token := f.session()
	for name, tc := range map[string]struct {
		change func(*router.Request)
		status int
	}{
		"origin":         {func(r *router.Request) { r.Origin = "https://evil.example" }, 403},
		"allowed origin": {func(r *router.Request) { r.Origin = "https://app.example" }, 200},
		"type":           {func(r *router.Request) { r.ContentType = "text/plain" }, 415},
		"accept":         {func(r *router.Request) { r.Accept = "application/json" }, 406},
		"any answer":     {func(r *router.Request) { r.Accept = "*/*" }, 200},
		"no accept":      {func(r *router.Request) { r.Accept = "" }, 200},
	} {
		d, _ := f.decide(token, request("ping", ""), tc.change)
		assert.Equal(t, tc.status, d.Status, name)
		if tc.status != 200 {
			assert.Equal(t, -32600, codeOf(t, d), name)
			assert.NotContains(t, string(whole(d)), `"id"`, name)
		}
	}
}

func TestBatchDecision(t *testing.T) {
	f := newFixture(t)
	_, old := f.table.New(session.Claims{Revision: 1})
	_, newer := f.session()
	ping := request("ping", "")
	d, r := f.decide(old, "["+ping+", "+ping+"]")
	assert.Equal(t, router.Broker, d.Way)
	assert.Nil(t, d.Err)
	require.Len(t, d.Batch, 2)
	assert.Equal(t, ping, string(d.Batch[1].Of(r.Body)))
	assert.NotNil(t, d.Session)
	for body, token := range map[string]string{
		"[" + ping + "]": newer, "[]": old, "[" + strings.Repeat("1,", 50) + "1]": old, "[1": old,
	} {
		d, _ = f.decide(token, body)
		assert.Equal(t, router.Reply, d.Way, body)
		assert.Equal(t, 400, d.Status, body)
		assert.Nil(t, d.Batch)
	}
	d, _ = f.decide("", "["+ping+"]")
	assert.Equal(t, "no_session", d.Outcome())
}

func TestCompletionAndSubscriptions(t *testing.T) {
	f := newFixture(t)
	f.ready("s")
	_, token := f.session("s")
	for _, tc := range []struct {
		method, params string
		way            router.Way
		name, target   string
		code           int
	}{
		{"completion/complete", `{"argument":{"name":"s_add"},"ref":{"type":"ref/prompt","name":"s_ask"}}`, router.Direct, "ask", `"s_ask"`, 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+note://{id}"}}`, router.Direct, "note://{id}", `"s+note://{id}"`, 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"s+file:///a"}}`, router.Direct, "file:///a", `"s+file:///a"`, 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"x:y"}}`, router.Reply, "", "", -32602},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"ask"}}`, router.Reply, "", "", -32602},
		{"completion/complete", `{"ref":{"type":"ref/prompt","uri":"s+file:///a"}}`, router.Reply, "", "", -32602},
		{"completion/complete", `{}`, router.Reply, "", "", -32602},
		{"resources/subscribe", `{"uri":"s+file:///a"}`, router.Broker, "file:///a", `"s+file:///a"`, 0},
		{"resources/unsubscribe", `{"uri":"s+file:///a"}`, router.Broker, "file:///a", `"s+file:///a"`, 0},
		{"resources/subscribe", `{"uri":"x:y"}`, router.Reply, "", "", -32002},
		{"resources/subscribe", `{}`, router.Reply, "", "", -32602},
		{"logging/setLevel", `{"level":"info"}`, router.Broker, "", "", 0},
	} {
		d, r := f.decide(token, request(tc.method, tc.params))
		require.Equal(t, tc.way, d.Way, "%v: %s", tc, d.Body)
		assert.Equal(t, tc.method, d.Method)
		if tc.code != 0 {
			assert.Equal(t, tc.code, codeOf(t, d), "%v", tc)
			continue
		}
		assert.NotNil(t, d.Session)
		assert.Equal(t, tc.name, d.Call.Name)
		assert.Equal(t, tc.target, string(d.Call.Target.Of(r.Body)))
	}
	f.registry.SetUnavailable("s", registry.ReasonUnreachable, "down")
	d, _ := f.decide(token, request("resources/subscribe", `{"uri":"s+file:///a"}`))
	assert.Equal(t, 503, d.Status)
	d, _ = f.decide(token, request("resources/unsubscribe", `{"uri":"s+file:///a"}`))
	assert.Equal(t, router.Broker, d.Way, "a subscription ends also when its server is down")
}

// paged returns a fixture with lists in pages, and the token of a session.
func paged(t testing.TB) (*fixture, string) {
	f := newFixture(t)
	f.PageSize, f.Seals = 1, session.NewKeyring([32]byte{7})
	f.ready("s")
	_, token := f.session()
	return f, token
}

func TestCursors(t *testing.T) {
	f, token := paged(t)
	next := func(params string) (cursor string) {
		d, _ := f.decide(token, request("tools/list", params))
		require.Nil(t, d.Err, "%s", d.Body)
		var a struct{ Result struct{ NextCursor string } }
		require.NoError(t, json.Unmarshal(whole(d), &a))
		return a.Result.NextCursor
	}
	cursor := next("")
	require.NotEmpty(t, cursor)
	assert.Empty(t, next(fmt.Sprintf(`{"cursor":%q}`, cursor)))
	f.PageSize = 0
	assert.Empty(t, next(fmt.Sprintf(`{"cursor":%q}`, cursor)), "good also after paging was turned off")
	d, _ := f.decide(token, request("prompts/list", fmt.Sprintf(`{"cursor":%q}`, cursor)))
	assert.Equal(t, -32602, codeOf(t, d))
	f.Seals = nil
	d, _ = f.decide(token, request("tools/list", fmt.Sprintf(`{"cursor":%q}`, cursor)))
	assert.Equal(t, -32602, codeOf(t, d))
}

// No cursor but the gateway's own is taken, and none does harm.
func FuzzCursor(f *testing.F) {
	fx, token := paged(f)
	var key [32]byte // of this process alone: what another one made is foreign
	_, err := rand.Read(key[:])
	require.NoError(f, err)
	fx.Seals = session.NewKeyring(key)
	own := fx.Seals.Seal(session.PurposeCursor, []byte("\x00nadd"))
	f.Add(own)
	f.Add(own[:len(own)-1])
	f.Add(fx.Seals.Seal(session.PurposeSession, []byte("\x00nadd")))
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		raw, err := json.Marshal(cursor)
		require.NoError(t, err)
		d, _ := fx.decide(token, request("tools/list", `{"cursor":`+string(raw)+`}`))
		var known string
		require.NoError(t, json.Unmarshal(raw, &known))
		if known == "" || known == own {
			assert.Nil(t, d.Err)
			return
		}
		assert.Equal(t, "invalid_params", d.Outcome(), "%s", d.Body)
	})
}
