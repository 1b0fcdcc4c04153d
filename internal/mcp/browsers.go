package mcp

// What pages in browsers may do, once their origin may do anything: the values
// of the Access-Control-* headers of the same name (Fetch, "HTTP extensions").
// Credentials that browsers add by themselves, such as cookies, are never asked
// for.
const (
	CORSMethods = "POST, GET, DELETE"
	// CORSRequestHeaders has a star for what servers and operators may want of
	// clients, such as Mcp-Param-*; but the star does not stand for
	// Authorization, and old browsers do not know it.
	CORSRequestHeaders = "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, " +
		"Mcp-Method, Mcp-Name, X-Mcp-Virtualserver, *"
	// CORSResponseHeaders are what scripts need of an answer: the session, and
	// where to ask for a token.
	CORSResponseHeaders = "Mcp-Session-Id, WWW-Authenticate"
	// CORSMaxAge is for how many seconds a browser need not ask again: the most
	// that Chromium remembers.
	CORSMaxAge = "7200"
)
