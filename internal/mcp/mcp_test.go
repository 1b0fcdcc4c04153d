package mcp

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ordinals stand in sealed session ids: they may never change.
func TestRevisions(t *testing.T) {
	for version, ordinal := range map[string]uint8{"2025-03-26": 1, "2025-06-18": 2, "2025-11-25": 3} {
		r, ok := ParseRevision(version)
		require.True(t, ok)
		assert.Equal(t, ordinal, r.Ordinal())
		back, ok := RevisionByOrdinal(ordinal)
		require.True(t, ok)
		assert.Equal(t, r, back)
		assert.Equal(t, r, Negotiate(version))
		assert.Equal(t, version == "2025-03-26", r.Batches())
		assert.Equal(t, version != "2025-03-26", r.VersionHeader())
		assert.Equal(t, version == "2025-11-25", r.PrimesStreams())
	}
	for _, version := range []string{"", "2024-11-05", "2026-07-28", " 2025-11-25", "2025-11-25\n"} {
		_, ok := ParseRevision(version)
		assert.False(t, ok, version)
		assert.Equal(t, LatestSession(), Negotiate(version))
	}
	_, ok := RevisionByOrdinal(0)
	assert.False(t, ok)
	assert.Equal(t, []string{"2025-03-26", "2025-06-18", "2025-11-25"}, SupportedVersions())
}

func TestErrorBody(t *testing.T) {
	e := &Error{Code: CodeInvalidParams, Message: "a \"b\"\n<é\xff"}
	assert.Equal(t, `{"jsonrpc":"2.0","id":"x\u0041","error":{"code":-32602,"message":"a \"b\"\n\u003cé\ufffd"}}`, string(e.Body([]byte(`"x\u0041"`))))
	assert.Equal(t, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"a \"b\"\n\u003cé\ufffd"}}`, string(e.Body(nil)), "clients reject a null id")
	assert.True(t, json.Valid(e.Body(nil)))
	assert.Equal(t, `{"jsonrpc":"2.0","id":9007199254740993,"result":{"a":1.0}}`, string(Result([]byte("9007199254740993"), []byte(`{"a":1.0}`))))
}

// 2026-07-28, Transports, "Value Encoding".
func TestEncodeHeaderValue(t *testing.T) {
	for _, plain := range []string{"", "echo", "a b", "file:///a?b=c&d", "=?base64"} {
		assert.Equal(t, plain, EncodeHeaderValue(plain))
	}
	for _, v := range []string{"é", " a", "a ", "a\n", "a\r\nX: y", "\x7f", "\x00", "=?base64?eA==?="} {
		got := EncodeHeaderValue(v)
		inner, ok := strings.CutPrefix(got, "=?base64?")
		require.True(t, ok, got)
		inner, ok = strings.CutSuffix(inner, "?=")
		require.True(t, ok, got)
		back, err := base64.StdEncoding.DecodeString(inner)
		require.NoError(t, err)
		assert.Equal(t, v, string(back))
	}
}

// The split undoes what qualifying did, whatever the URI is.
func TestQualifiedURIs(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///a":     "my-s1+file:///a",
		"git+ssh://x":   "my-s1+git+ssh://x",
		"ui://widget/a": "ui://my-s1.widget/a",
		"ui://a.b/c":    "ui://my-s1.a.b/c",
		"x:{+y}":        "my-s1+x:{+y}",
	} {
		got := QualifyURI("my-s1", uri)
		assert.Equal(t, want, got)
		server, bare, ok := SplitURI(got)
		assert.True(t, ok)
		assert.Equal(t, "my-s1", server)
		assert.Equal(t, uri, bare)
	}
	for _, uri := range []string{"", "file:///a", "+x:y", "A+x:y", "1a+x:y", "a_b+x:y", "-a+x:y", "ui://widget", "ui://.a/b", "ui://A.b/c"} {
		_, _, ok := SplitURI(uri)
		assert.False(t, ok, uri)
	}
}

func TestStatusForClients(t *testing.T) {
	for _, tc := range []struct {
		userAgent    string
		status, want int
	}{
		{"node", 503, 503},
		{"", 400, 400},
		{"python-httpx2/2.0", 503, 503},
		{"python-httpx/0.28.1", 503, 200},
		{"python-httpx/0.28.1", 400, 200},
		{"python-httpx/0.28.1", 404, 404},
		{"python-httpx/0.28.1", 202, 202},
		{"python-httpx/0.28.1", 302, 302},
	} {
		assert.Equal(t, tc.want, ClientStatus(tc.userAgent, tc.status), "%+v", tc)
		assert.Equal(t, strings.HasPrefix(tc.userAgent, "python-httpx/"), Fragile(tc.userAgent))
	}
	for _, q := range statusQuirks {
		assert.NotEmpty(t, q.reason)
		assert.GreaterOrEqual(t, q.survives, http.StatusBadRequest)
	}
}

func TestMethodLabelIsBounded(t *testing.T) {
	assert.Equal(t, MethodToolsCall, MethodLabel("tools/call"))
	assert.Equal(t, MethodOther, MethodLabel("made/up"))
	assert.Equal(t, MethodOther, MethodLabel("Tools/Call"))
	assert.Equal(t, MethodOther, MethodLabel(""))
	label := ""
	assert.Zero(t, testing.AllocsPerRun(100, func() { label = MethodLabel("tools/call") }), label)
}

// Header names are compared with those of Envoy and HTTP/2.
func TestPrivateHeadersAreLowerCase(t *testing.T) {
	for _, list := range [][]string{PrivateHeaders, PrivateResponseHeaders} {
		for _, name := range list {
			assert.Equal(t, strings.ToLower(name), name)
		}
	}
}
