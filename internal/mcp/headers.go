package mcp

// HTTP header names, in the lower case that Envoy and HTTP/2 use. net/http
// canonicalizes them by itself in Get, Set and Del.
const (
	HeaderSessionID       = "mcp-session-id"
	HeaderProtocolVersion = "mcp-protocol-version"
	HeaderMethod          = "mcp-method"
	HeaderName            = "mcp-name"
	HeaderLastEventID     = "last-event-id"
	HeaderVirtualServer   = "x-mcp-virtualserver"
)

// PrivateHeaders are the request headers that stay between the client and the
// gateway: a backend never sees the client's credentials or the gateway's
// session id. Nor does it see which page a browser speaks for: the gateway has
// judged that, and a backend would refuse pages that are none of its own.
// Whoever forwards a request removes them, and the gateway's own headers too.
var PrivateHeaders = []string{
	"authorization", "cookie", "proxy-authorization",
	"origin", "referer", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest",
	HeaderSessionID, HeaderLastEventID,
	HeaderVirtualServer, "x-authorized-tools", "x-mcp-prefer",
}

// PrivateResponseHeaders are the response headers of a backend that no client
// sees: backend sessions, cookies and challenges are between the gateway and
// the backend.
var PrivateResponseHeaders = []string{HeaderSessionID, "set-cookie", "www-authenticate"}

// OriginResponseHeaders are the response headers of a backend that would speak
// for the gateway's own origin. No client sees them either.
var OriginResponseHeaders = []string{
	"access-control-allow-credentials", "access-control-allow-headers", "access-control-allow-methods",
	"access-control-allow-origin", "access-control-expose-headers", "access-control-max-age",
	"alt-svc", "clear-site-data", "strict-transport-security", "server",
}
