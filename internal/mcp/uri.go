package mcp

import "strings"

// uiScheme is the scheme of MCP Apps resources: hosts look for it literally, so
// the gateway must not change it.
const uiScheme = "ui://"

// QualifyURI puts the server in front of a resource URI or URI template:
// "file:///a" of server weather is "weather+file:///a" (server names are
// [a-z][a-z0-9-]*, so any scheme stays valid by RFC 3986, section 3.1), and
// "ui://widget/a" is "ui://weather.widget/a".
func QualifyURI(server, uri string) string {
	if rest, ok := strings.CutPrefix(uri, uiScheme); ok {
		return uiScheme + server + "." + rest
	}
	return server + "+" + uri
}

// SplitURI undoes [QualifyURI]. It reports false for a URI that carries no
// server. That the server exists is for the caller to check: "git+ssh://x" is
// also a URI of its own.
func SplitURI(uri string) (server, bare string, ok bool) {
	if rest, isUI := strings.CutPrefix(uri, uiScheme); isUI {
		server, rest, ok = strings.Cut(rest, ".")
		if !ok || !isServerName(server) {
			return "", "", false
		}
		return server, uiScheme + rest, true
	}
	server, bare, ok = strings.Cut(uri, "+")
	if !ok || !isServerName(server) {
		return "", "", false
	}
	return server, bare, true
}

func isServerName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || (c != '-' && (c < '0' || c > '9'))) {
			return false
		}
	}
	return s != ""
}
