package router

import (
	"slices"
	"strings"
)

// Origins are the web origins whose pages may speak to the gateway, as in the
// configuration: "https://app.example", "http://localhost:*" for any port, or "*"
// for all. Nil is none. Requests without an Origin come from no page.
type Origins []string

// anyPort ends an origin that may have any port, or none.
const anyPort = ":*"

// Allow tells whether a request with this Origin header may be served. A page
// that reaches the gateway by a name that its owner made point here (DNS
// rebinding) still has its own origin, and is refused (2025-11-25, Transports,
// "Security Warning").
func (o Origins) Allow(origin string) bool {
	return slices.ContainsFunc(o, func(may string) bool {
		host, wild := strings.CutSuffix(may, anyPort)
		if !wild {
			return may == "*" || may == origin
		}
		port, ok := strings.CutPrefix(origin, host)
		return ok && (port == "" || isPort(port))
	})
}

// isPort tells whether s is a colon and a port.
func isPort(s string) bool {
	digits, ok := strings.CutPrefix(s, ":")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}
