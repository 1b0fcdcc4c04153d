package config

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestErrors gives one bad file after the other and compares every error with
// its place.
func TestErrors(t *testing.T) {
	server := func(rest string) string { return "servers:\n- {name: a, url: http://h/mcp, " + rest + "}" }
	for _, tc := range []struct{ name, file, want string }{
		// What no type has.
		{"unknown key", "lisen: x", `1:1: lisen: unknown key (did you mean "listen"?); expected one of listen, admin, tls, bodyLimit, pageSize, origins, stateDir, sessions, calls, servers, virtualServers`},
		{"unknown key far", "sessions: {zzz: 1}", `1:12: sessions.zzz: unknown key; expected one of keyFile, store, lifetime, idleTimeout`},
		{"unknown key in a server", server("header: {}"), `2:32: servers[0].header: unknown key (did you mean "headers"?); expected one of name, url, prefix, headers, timeout, poll, way, tls, group, labels`},
		{"case", "Listen: x", `1:1: Listen: unknown key (did you mean "listen"?); expected one of listen, admin, tls, bodyLimit, pageSize, origins, stateDir, sessions, calls, servers, virtualServers`},
		{"duplicate key", "listen: :1\nlisten: :2", `2:1: listen: this key is already there, at line 1, column 1`},
		{"duplicate header", server("headers: {A: b, A: c}"), `2:48: servers[0].headers.A: this key is already there, at line 2, column 42`},
		{"missing keys", "servers:\n- {}\n", "2:3: servers[0]: the key \"name\" is missing; expected a string\n2:3: servers[0]: the key \"url\" is missing; expected a string"},
		{"required key without value", "servers:\n- name:\n  url: http://h/\n", `2:8: servers[0].name: expected a string, got nothing`},
		// Wrong types.
		{"list for mapping", "- a", `1:1: expected a mapping, got a list`},
		{"mapping for list", "servers: {a: b}", `1:10: servers: expected a list, got a mapping`},
		{"string for mapping", "servers: [x]", `1:11: servers[0]: expected a mapping, got a string`},
		{"null in list", "servers:\n-\n", `2:3: servers[0]: expected a mapping, got nothing`},
		{"number for string", "listen: 8080", `1:9: listen: expected a string, got a number: put it in quotes`},
		{"bool for string", server("group: yes, labels: {a: true}"), `2:56: servers[0].labels.a: expected a string, got true or false: put it in quotes`},
		{"number for duration", server("timeout: 30"), `2:41: servers[0].timeout: expected a duration such as "30s" or "1h30m", got a number`},
		{"bad duration", server("timeout: 30 s"), `2:41: servers[0].timeout: expected a duration such as "30s" or "1h30m", got "30 s"`},
		{"negative duration", server("poll: -5s"), `2:38: servers[0].poll: expected a duration such as "30s" or "1h30m" that is not negative, got "-5s"`},
		{"list for size", "bodyLimit: [1]", `1:12: bodyLimit: expected a size in bytes, a number or such as "4MiB", got a list`},
		{"unit", "bodyLimit: 4MB", `1:12: bodyLimit: expected a size in bytes, a number or such as "4MiB", got "4MB"`},
		{"list for header", server("headers: {A: [s3cret]}"), `2:45: servers[0].headers.A: expected a string, got a list`},
		// Values.
		{"listen", "listen: localhost", `1:9: listen: expected "host:port", such as "127.0.0.1:8080", got "localhost"`},
		{"host", "admin: gw.example:80", `1:8: admin: expected an IP address, "localhost" or nothing before the port, got "gw.example"`},
		{"port", "admin: :http", `1:8: admin: expected a port from 0 to 65535, got "http"`},
		{"same address", "listen: localhost:8090", `1:1: admin: expected another address than that of listen`},
		{"small body limit", "bodyLimit: 1023", `1:12: bodyLimit: expected a size from 1KiB to 64MiB`},
		{"large body limit", "bodyLimit: 65MiB", `1:12: bodyLimit: expected a size from 1KiB to 64MiB`},
		{"page size", "pageSize: -1", `1:11: pageSize: expected a number from 0 to 10000`},
		{"large page size", "pageSize: 10001", `1:11: pageSize: expected a number from 0 to 10000`},
		{"page size as text", `pageSize: "5"`, `1:11: pageSize: expected a whole number, got a string`},
		{"half a page", "pageSize: 1.5", `1:11: pageSize: expected a whole number, got "1.5"`},
		{"origin with a path", "origins: [https://a.example/]", `1:11: origins[0]: expected an origin in lower case and without a path, such as "https://app.example", or "*", got "https://a.example/"`},
		{"origin in capitals", "origins: [\"*\", https://A.example]", `1:16: origins[1]: expected an origin in lower case and without a path, such as "https://app.example", or "*", got "https://A.example"`},
		{"origin without scheme", "origins: [a.example]", `1:11: origins[0]: expected an origin in lower case and without a path, such as "https://app.example", or "*", got "a.example"`},
		{"origin with stars", "origins: [https://*.example]", `1:11: origins[0]: expected an origin in lower case and without a path, such as "https://app.example", or "*", got "https://*.example"`},
		{"store", "sessions: {store: redis}", `1:19: sessions.store: expected "memory", got "redis"`},
		{"lifetime", "sessions: {lifetime: 0s, idleTimeout: 0}", "1:22: sessions.lifetime: expected a duration above 0\n1:39: sessions.idleTimeout: expected a duration above 0"},
		{"name", "servers:\n- {name: A_b, url: http://h/}", `2:10: servers[0].name: expected a lower-case letter, then at most 39 of a-z, 0-9 and '-', got "A_b"`},
		{"same name", "servers:\n- {name: a, url: http://h/}\n- {name: a, url: http://h/}", `3:10: servers[1].name: expected a name of its own: servers[0] is already called "a"`},
		{"prefix", server(`prefix: "a b"`), `2:40: servers[0].prefix: expected at most 64 of A-Z, a-z, 0-9, '_', '.' and '-', got "a b"`},
		{"way", server("way: brokr"), `2:37: servers[0].way: expected "auto" or "broker", got "brokr" (did you mean "broker"?)`},
		{"poll", server("poll: 1ms"), `2:38: servers[0].poll: expected a duration of at least 1s`},
		{"tls on http", server("tls: {serverName: x}"), `2:37: servers[0].tls: expected no tls, because the URL is http`},
		{"tls without keys", "tls: {}", "1:6: tls: the key \"certFile\" is missing; expected a string\n1:6: tls: the key \"keyFile\" is missing; expected a string"},
		{"header name", server(`headers: {"a b": c}`), `2:49: servers[0].headers.a b: expected the name of an HTTP header`},
		{"header value", server(`headers: {a: "s3cret\r\nX: y"}`), `2:45: servers[0].headers.a: expected a value of at most 8192 bytes without line breaks or other control characters`},
		{"own header", server(`headers: {Mcp-Session-Id: x}`), `2:58: servers[0].headers.Mcp-Session-Id: expected another header: the gateway sets this one itself`},
		{"own prefix", server(`headers: {x-PATCHBAY-recover: x}`), `2:62: servers[0].headers.x-PATCHBAY-recover: expected another header: the gateway sets this one itself`},
		{"header twice", server(`headers: {a: b, A: c}`), `2:45: servers[0].headers.a: this header is already there in other letters`},
		{"variable not set", server(`headers: {a: "x${NOPE}"}`), `2:45: servers[0].headers.a: the environment variable NOPE is not set`},
		{"variable default", server(`headers: {a: "${A:-b}"}`), `2:45: servers[0].headers.a: expected "${NAME}" with the name of an environment variable, without a default or other syntax; "$${" stands for "${" itself`},
		{"variable open", server(`headers: {a: "${A"}`), `2:45: servers[0].headers.a: expected "${NAME}", the closing brace is missing; "$${" stands for "${" itself`},
		// No tree at all.
		{"syntax", "servers: [\n", `1:10: not valid YAML: sequence end token ']' not found`},
		{"tab", "servers:\n\t- a", "2:1: not valid YAML: found character '\t' that cannot start any token"},
		{"utf-8", "listen: a\n# ä \xff", `2:5: not valid UTF-8: save the file in UTF-8`},
		{"two documents", "listen: :1\n---\nlisten: :2", `3:1: expected one YAML document, found a second one`},
		{"tag", "listen: !!str x", `1:9: YAML tags (!name) are not supported`},
		{"merge", "tls: &a {}\n<<: *a", `2:1: YAML merge keys (<<) are not supported: write the keys out`},
		{"alias", "tls: *a", `1:6: this alias (*name) has no anchor (&name) before it`},
		{"json", `{"listen": 1,}`, `1:13: not valid JSON: invalid character ',' at start of value`},
		{"json end", "{\"listen\":\n", `2:1: the file ends in the middle of a JSON value`},
		{"json twice", "{} {}", `1:4: expected the end of the file after the JSON value`},
		{"json position", "{\"ü\": 1,\n\t\"listen\" : [ 1 ]}", "1:2: ü: unknown key; expected one of listen, admin, tls, bodyLimit, pageSize, origins, stateDir, sessions, calls, servers, virtualServers\n2:13: listen: expected a string, got a list"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Parse("f", []byte(tc.file), testEnv())
			require.Error(t, err)
			want := "f:" + strings.ReplaceAll(tc.want, "\n", "\nf:")
			assert.Equal(t, want, err.Error())
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestURLs(t *testing.T) {
	parse := func(url string, env ...string) error {
		_, _, err := Parse("f", []byte(`{"servers":[{"name":"a","url":"`+url+`"}]}`), testEnv(env...))
		return err
	}
	for _, good := range []string{"http://h", "https://h.example:1/a?b=c%20d", "http://[::1]:9/mcp", "http://10.0.0.1/", "http://a_b.c.svc./x", "${U}"} {
		assert.NoError(t, parse(good, "U", "https://h/"), good)
	}
	for bad, want := range map[string]string{
		"":                 `begins with "http://"`,
		"h/mcp":            `begins with "http://"`,
		"ftp://h/":         `begins with "http://"`,
		"http://":          "expected a host name",
		"http://h:0/":      "expected a host name",
		"http://h:/":       "expected a host name",
		"http://h:70000/":  "expected a host name",
		"http://h_-/":      "expected a host name",
		"http://ä.example": "expected a host name",
		"http://u:p@h/":    "without user and password",
		"http://h/#f":      `without "#"`,
		"http://h/#":       `without "#"`,
		"http://h/%zz":     "expected an URL such as",
		"http://h/a b":     "expected an URL such as",
		" http://h/":       "expected an URL such as",
		"http://h/" + strings.Repeat("x", maxURL): "expected an URL such as",
	} {
		err := parse(bad)
		require.Error(t, err, bad)
		assert.Contains(t, err.Error(), "f:1:31: servers[0].url: ", bad)
		assert.Contains(t, err.Error(), want, bad)
	}
	// Whatever is wrong with a value from the environment, it is not shown.
	for _, secret := range []string{"s3cret", "ftp://s3cret/", "http://s3cret:s3cret@h/", "http://s3cret:s3cret/", "http://h/%s3cret", "http://h/#s3cret", "http://-s3cret/", "\x00s3cret"} {
		err := parse("${U}", "U", secret)
		require.Error(t, err, "%q", secret)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	write("not.pem", []byte("hello"))
	write("bad.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	parse := func(file string) error {
		_, _, err := Parse(filepath.Join(dir, "f.yaml"), []byte(file), testEnv())
		return err
	}
	for _, ca := range []string{"missing.pem", "not.pem", "bad.pem"} {
		err := parse("servers:\n- {name: a, url: https://h/, tls: {caFile: " + ca + "}}")
		require.ErrorContains(t, err, ":2:44: servers[0].tls.caFile: expected a PEM file with certificates")
	}
	require.ErrorContains(t, parse("tls: {certFile: not.pem, keyFile: missing.pem}"), ":1:6: tls: expected a PEM certificate and its private key")
	require.ErrorContains(t, parse(`tls: {certFile: "", keyFile: x}`), ":1:6: tls: expected the names of two PEM files")
}

func TestManyErrorsAreCut(t *testing.T) {
	_, _, err := Parse("f", []byte("servers:\n"+strings.Repeat("- {}\n", 40)), testEnv())
	var all Errors
	require.ErrorAs(t, err, &all)
	assert.Len(t, all, maxErrors+1)
	assert.Equal(t, "f: and 30 more errors", all[maxErrors].Error())
}

// TestHostileFiles gives files that are small and would cost much.
func TestHostileFiles(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 60; i++ {
		previous := strings.Repeat("*a"+string(rune('0'+(i-1)/10))+string(rune('0'+(i-1)%10))+", ", 10)
		bomb.WriteString("b" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + ": &a" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + " [" + strings.ReplaceAll(previous, "*a00", "*a0") + "]\n")
	}
	const deep = "nested deeper than 64 levels"
	for name, tc := range map[string]struct{ file, want string }{
		"alias bomb":       {bomb.String(), "unknown key"},
		"alias in servers": {"servers: " + strings.Repeat("[", 50) + "&a x" + strings.Repeat("]", 50) + "\nvirtualServers: [" + strings.Repeat("*a, ", 20000) + "]", "expected a mapping, got a string"},
		"alias in itself":  {"servers: &a [*a]", "has no anchor"},
		"brackets":         {strings.Repeat("[", 200_000), "more than 100000 tokens"},
		"deep brackets":    {strings.Repeat("[", 50_000), deep},
		"closed brackets":  {"servers: " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), deep},
		"braces":           {"x: " + strings.Repeat("{a: ", 20_000), deep},
		"dashes":           {strings.Repeat("- ", 50_000), deep},
		"question marks":   {strings.Repeat("? ", 50_000), deep},
		"anchors":          {strings.Repeat("&a ", 40_000), "more than 100 anchors"},
		"anchors in flow":  {"servers: [" + strings.Repeat("&a x, ", 101) + "]", "more than 100 anchors"},
		"tags":             {strings.Repeat("!a ", 50_000), "tags"},
		"indent":           {indented(1000), deep},
		"many keys":        {strings.Repeat("k: v\n", 110_000), "more than 100000 tokens"},
		"json brackets":    {"{\"servers\":" + strings.Repeat("[", 200_000), deep},
		"json depth":       {"{\"servers\":" + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}", deep},
		"json values":      {"{\"servers\":[" + strings.Repeat("0,", maxNodes+10) + "0]}", "more than 100000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, _, err := Parse("f", []byte(tc.file), testEnv())
			require.ErrorContains(t, err, tc.want)
			assert.Less(t, time.Since(start), 30*time.Second)
			assert.Less(t, len(err.Error()), 20_000)
		})
	}
}

func TestOwnHeaders(t *testing.T) {
	parse := func(name string) error {
		_, _, err := Parse("f", []byte(`{"servers":[{"name":"a","url":"http://h/","headers":{"`+name+`":"x"}}]}`), testEnv())
		return err
	}
	for _, name := range []string{
		"host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Upgrade", "Accept", "Content-Type", "Last-Event-ID",
		"MCP-SESSION-ID", "Mcp-Protocol-Version", "mcp-method", "mcp-name", "Mcp-Param-X", "X-Patchbay-Recover", "x-envoy-retry-on",
	} {
		assert.ErrorContains(t, parse(name), "the gateway sets this one itself", name)
	}
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "User-Agent", "Mcp-Custom"} {
		assert.NoError(t, parse(name), name)
	}
}

func indented(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"servers:\n- {name: a, url: \"http://h/${V}\", headers: {a: b}}\n", "a: &x [1, *x]\n<<: *x", "- - ? a\n  : |\n   x\n",
		`{"mcpServers":{"A b":{"url":"http://h","type":"http","headers":{"a":"$${b}"}},"c":{"command":"x"}}}`, "a: !!str 'b'\n---\n", "\uFEFF{a: b}",
		"tls: {certFile: a, keyFile: b}", "bodyLimit: 4MiB\nsessions: {lifetime: 1h}", "\"a\\u0000\": >-\n  b\n # c\n", "%YAML 1.2\n---\na: .inf",
	} {
		f.Add("f", []byte(seed))
		f.Add("f.json", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		c, _, err := Parse(name, data, testEnv("V", "v"))
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v, error %v", c, err)
		}
		if err == nil && (c.StateDir == "" || c.BodyLimit < minBodyLimit) {
			t.Fatalf("accepted without a default: %+v", c)
		}
	})
}
