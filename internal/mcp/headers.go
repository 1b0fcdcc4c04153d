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

	// HeaderPrefix is the prefix of every header of ours. Envoy removes such
	// headers from what clients send before anything looks at them.
	HeaderPrefix = "x-patchbay-"
	// HeaderCluster chooses the direct route and its cluster. Only ext_proc
	// sets it.
	HeaderCluster = "x-patchbay-cluster"
	// HeaderLost names the status by which this backend tells that it lost a
	// session, where that is not 404: it chooses the direct route's retries.
	HeaderLost = "x-patchbay-lost"
	// HeaderRecover carries the sealed recovery context of a direct call that
	// Envoy retries at the broker.
	HeaderRecover = "x-patchbay-recover"
)

// PrivateHeaders are the request headers that stay between the client and the
// gateway: a backend never sees the client's credentials, the gateway's session
// id or the gateway's own headers. Whoever forwards a request removes them and
// everything that starts with HeaderPrefix.
var PrivateHeaders = []string{
	"authorization", "cookie", "proxy-authorization",
	HeaderSessionID, HeaderLastEventID,
	HeaderVirtualServer, "x-authorized-tools", "x-mcp-prefer",
}

// PrivateResponseHeaders are the response headers of a backend that no client
// sees: backend sessions, cookies and challenges are between the gateway and
// the backend.
var PrivateResponseHeaders = []string{HeaderSessionID, "set-cookie", "www-authenticate"}
