package mcp

import (
	"net/http"
	"strings"
)

// statusQuirks are the clients that are known to die of an HTTP status that the
// specification allows. They get the same JSON-RPC error with 200.
var statusQuirks = []struct {
	userAgent string // prefix of the User-Agent
	survives  int    // the one status >= 400 that the client handles
	reason    string
}{
	{
		"python-httpx/", http.StatusNotFound,
		"Python SDK 1.x (langchain too) ends the whole session at any status >= 400 but 404",
	},
}

// Fragile tells whether the client that calls itself userAgent is one that dies
// of error statuses, so that its calls must take the broker's way, where every
// status can be mapped.
func Fragile(userAgent string) bool {
	for i := range statusQuirks {
		if strings.HasPrefix(userAgent, statusQuirks[i].userAgent) {
			return true
		}
	}
	return false
}

// ClientStatus returns the HTTP status under which the client that calls itself
// userAgent gets a JSON-RPC error whose proper status is status.
func ClientStatus(userAgent string, status int) int {
	if status < http.StatusBadRequest {
		return status
	}
	for i := range statusQuirks {
		q := &statusQuirks[i]
		if strings.HasPrefix(userAgent, q.userAgent) && status != q.survives {
			return http.StatusOK
		}
	}
	return status
}
