package mcp

// Revision is one published revision of the protocol, as far as revisions
// differ in what the gateway does. Values are comparable.
type Revision interface {
	// String is the protocolVersion on the wire, such as "2025-06-18".
	String() string
	// Ordinal is a small number, stable for ever, that stands for the
	// revision in sealed session ids. It is never 0.
	Ordinal() uint8
	// Batches tells whether a POST body may be a JSON-RPC batch.
	Batches() bool
	// VersionHeader tells whether clients must send MCP-Protocol-Version on
	// every request after initialize (Transports, "Protocol Version Header").
	// What the gateway does about the header is the same for all: without it
	// the session's own revision holds, which is what "no other way to identify
	// the version" leaves to a server with sessions; a version that the gateway
	// does not speak is 400, also in a session of 2025-03-26, which does not
	// know the header, because clients of other eras are told apart by it; and
	// another supported version than the negotiated one is served, for only
	// SHOULD it be that one, and no SDK's server looks.
	VersionHeader() bool
	// PrimesStreams tells whether an SSE stream starts with an event that has
	// an id and empty data, so that the client can resume it.
	PrimesStreams() bool
}

// sessionEra lists the revisions with sessions that the gateway speaks, oldest
// first.
var sessionEra = [...]Revision{rev20250326{}, rev20250618{}, rev20251125{}}

// LatestSession is the newest revision of the session era: what the gateway
// answers to an initialize that asks for a version it does not know, and what
// it asks of backends.
func LatestSession() Revision { return sessionEra[len(sessionEra)-1] }

// ParseRevision returns the session-era revision named by version.
func ParseRevision(version string) (Revision, bool) {
	for _, r := range sessionEra {
		if r.String() == version {
			return r, true
		}
	}
	return nil, false
}

// RevisionByOrdinal is the inverse of [Revision.Ordinal].
func RevisionByOrdinal(n uint8) (Revision, bool) {
	for _, r := range sessionEra {
		if r.Ordinal() == n {
			return r, true
		}
	}
	return nil, false
}

// SupportedVersions returns the versions of the session era, oldest first, for
// error messages.
func SupportedVersions() []string {
	out := make([]string, len(sessionEra))
	for i, r := range sessionEra {
		out[i] = r.String()
	}
	return out
}

// Negotiate implements the server's half of version negotiation (Lifecycle,
// "Version Negotiation"): the requested version when it is supported, else the
// newest one that is.
func Negotiate(requested string) Revision {
	if r, ok := ParseRevision(requested); ok {
		return r
	}
	return LatestSession()
}
