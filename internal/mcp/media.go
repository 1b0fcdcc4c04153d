package mcp

import (
	"mime"
	"strings"
)

// The media types of the transport.
const (
	MediaJSON   = "application/json"
	MediaEvents = "text/event-stream"
)

// acceptBoth is what nearly every client sends on POST.
const acceptBoth = MediaJSON + ", " + MediaEvents

// AcceptsAnswers tells whether a POST with this Accept header may be answered in
// JSON and in an event stream, as a client must allow (2025-11-25, Transports,
// "Sending Messages to the Server"). Ranges such as */* count, because plain
// HTTP tools send them, and so does no header at all (RFC 9110, section 12.5.1).
// The weights are not looked at: no client refuses one by q=0.
func AcceptsAnswers(accept string) bool {
	if accept == acceptBoth || accept == "" || accept == "*/*" {
		return true
	}
	return accepts(accept, MediaJSON) && accepts(accept, MediaEvents)
}

// AcceptsEvents tells whether a GET with this Accept header may be answered by
// an event stream.
func AcceptsEvents(accept string) bool {
	return accept == MediaEvents || accepts(accept, MediaEvents)
}

func accepts(accept, media string) bool {
	kind, _, _ := strings.Cut(media, "/")
	for part := range strings.SplitSeq(accept, ",") {
		switch mediaType(part) {
		case media, kind + "/*", "*/*":
			return true
		}
	}
	return false
}

// IsJSON tells whether a Content-Type header is that of a JSON-RPC message. A
// body of another type must not be served: only for this one a browser asks
// first whether a foreign page may send it.
func IsJSON(contentType string) bool {
	return contentType == MediaJSON || mediaType(contentType) == MediaJSON
}

// mediaType returns the type without its parameters, also where those are
// malformed: no server refuses a request for them.
func mediaType(v string) string {
	t, _, err := mime.ParseMediaType(v)
	if err != nil {
		t, _, _ = strings.Cut(v, ";")
		t = strings.ToLower(strings.TrimSpace(t))
	}
	return t
}
