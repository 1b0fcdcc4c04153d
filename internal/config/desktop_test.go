package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDesktopFile(t *testing.T) {
	c, warnings, err := Parse("/d/mcp.json", []byte(`{
	"globalShortcut": "Ctrl+Space",
	"mcpServers": {
		"weather": {"url": "https://w.example/mcp", "type": "http", "headers": {"Authorization": "Bearer ${TOKEN}"}},
		"My Files!": {"command": "npx", "args": ["-y", "files"]},
		"Issue Tracker": {"serverUrl": "https://i.example/mcp", "alwaysAllow": ["x"], "disabled": false},
		"old": {"type": "sse", "url": "https://o.example/sse"},
		"off": {"url": "https://off.example/", "disabled": true},
		"gem": {"httpUrl": "http://g.example/mcp", "url": "http://g.example/sse"},
		"2nd": {"type": "streamable-http", "url": "http://h/"}
	}
}`), testEnv("TOKEN", "t0ken"))
	require.NoError(t, err)
	server := func(name, url string) Server {
		return Server{Name: name, URL: url, Way: WayAuto, Poll: Duration(defaultPoll)}
	}
	weather := server("weather", "https://w.example/mcp")
	weather.Headers = map[string]string{"Authorization": "Bearer t0ken"}
	assert.Equal(t, []Server{weather, server("issue-tracker", "https://i.example/mcp"), server("gem", "http://g.example/mcp"), server("s-2nd", "http://h/")}, c.Servers)
	assert.Equal(t, []string{
		`/d/mcp.json:2:2: globalShortcut: ignored, because this file is read for its mcpServers only`,
		`/d/mcp.json:5:3: mcpServers.My Files!: not supported yet: a server that is started by a command (stdio); it is left out`,
		`/d/mcp.json:6:3: mcpServers.Issue Tracker: called "issue-tracker" here: names have only a-z, 0-9 and '-', and begin with a letter`,
		`/d/mcp.json:6:59: mcpServers.Issue Tracker.alwaysAllow: ignored: Patchbay has no use for this key`,
		`/d/mcp.json:7:11: mcpServers.old.type: not supported yet: a server of the type "sse"; it is left out`,
		`/d/mcp.json:9:46: mcpServers.gem.url: ignored, because the entry has another URL`,
		`/d/mcp.json:10:3: mcpServers.2nd: called "s-2nd" here: names have only a-z, 0-9 and '-', and begin with a letter`,
	}, texts(warnings))
}

func TestDesktopErrors(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"clash":       {`{"mcpServers":{"a b":{"url":"http://h/"},"A-B":{"url":"http://h/"}}}`, `f:1:42: mcpServers.A-B: expected a name of its own: mcpServers.a b is already called "a-b"`},
		"twice":       {`{"mcpServers":{"a":{"url":"http://h/"},"a":{"url":"http://h/"}}}`, `f:1:40: mcpServers.a: this key is already there, at line 1, column 16`},
		"no url":      {`{"mcpServers":{"a":{}}}`, `f:1:16: mcpServers.a: the key "url" is missing; expected the URL of the server, or "command"`},
		"no name":     {`{"mcpServers":{"日":{"url":"http://h/"}}}`, `f:1:16: mcpServers.日: expected a name with a letter or digit of a-z and 0-9`},
		"bad url":     {`{"mcpServers":{"a":{"serverUrl":"x"}}}`, `f:1:21: mcpServers.a.url: expected an URL that begins with "http://" or "https://"`},
		"url type":    {`{"mcpServers":{"a":{"url":1}}}`, `f:1:27: mcpServers.a.url: expected a string, got a number`},
		"type":        {`{"mcpServers":{"a":{"type":"ws","url":"http://h/"}}}`, `f:1:21: mcpServers.a.type: expected "http", got "ws"`},
		"header":      {`{"mcpServers":{"a":{"url":"http://h/","headers":{"X":1}}}}`, `f:1:54: mcpServers.a.headers.X: expected a string, got a number`},
		"own header":  {`{"mcpServers":{"a":{"url":"http://h/","headers":{"Host":"x"}}}}`, `f:1:57: mcpServers.a.headers.Host: expected another header: the gateway sets this one itself`},
		"no mapping":  {`{"mcpServers":[]}`, `f:1:15: mcpServers: expected a mapping, got a list`},
		"entry":       {`{"mcpServers":{"a":"x"}}`, `f:1:20: mcpServers.a: expected a mapping, got a string`},
		"yaml, entry": {"mcpServers:\n  a: x\n", `f:2:6: mcpServers.a: expected a mapping, got a string`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse("f", []byte(tc.file), testEnv())
			require.EqualError(t, err, tc.want)
		})
	}
}
