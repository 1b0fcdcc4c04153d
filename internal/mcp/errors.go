package mcp

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// JSON-RPC error codes. The first five are JSON-RPC 2.0, section 5.1; the
// others are what MCP servers use by custom.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeServer is the general server error; clients that probe for a newer
	// era take it with HTTP 400 as "speak the older one".
	CodeServer = -32000
	// CodeSessionNotFound is what the official SDKs' servers use with HTTP 404.
	CodeSessionNotFound = -32001
	// CodeResourceNotFound is the session era's code for a resource that does
	// not exist.
	CodeResourceNotFound = -32002
	// CodeUnavailable: the backend cannot be reached (HTTP 503).
	CodeUnavailable = -32003
	// CodeTimeout: the call took longer than its limit (HTTP 504).
	CodeTimeout = -32004
)

// Reason says in one word why the gateway, not a backend, refused a request. It
// is the `outcome` label of the request metrics.
type Reason string

// The reasons.
const (
	ReasonParseError     Reason = "parse_error"
	ReasonInvalidRequest Reason = "invalid_request"
	ReasonTooLarge       Reason = "too_large"
	ReasonNoSession      Reason = "no_session"
	ReasonSessionUnknown Reason = "session_unknown"
	ReasonVersion        Reason = "unsupported_version"
	ReasonMethodUnknown  Reason = "method_unknown"
	ReasonInvalidParams  Reason = "invalid_params"
	ReasonNotFound       Reason = "not_found"
	ReasonUnavailable    Reason = "unavailable"
	ReasonTimeout        Reason = "timeout"
	ReasonOverloaded     Reason = "overloaded"
	ReasonInternal       Reason = "internal"
	ReasonBackend        Reason = "backend_broken"
	ReasonHTTPMethod     Reason = "http_method"
	ReasonOrigin         Reason = "origin"
	ReasonMedia          Reason = "media_type"
)

// Error is a JSON-RPC error that the gateway itself gives. Message is public; a
// private cause belongs into the log, not here.
type Error struct {
	Code    int
	Message string
	Reason  Reason
	Status  int // HTTP status
}

func (e *Error) Error() string { return e.Message }

// Body renders the JSON-RPC response for the request with the raw id (as it
// stood in the request, quotes included). Without an id the member is left out:
// MCP's RequestId is a string or an integer, and clients reject null.
func (e *Error) Body(id []byte) []byte {
	msg, err := json.Marshal(e.Message)
	if err != nil { // cannot happen for a string
		msg = []byte(`"error"`)
	}
	b := make([]byte, 0, 64+len(id)+len(msg))
	b = append(b, `{"jsonrpc":"2.0",`...)
	if len(id) > 0 {
		b = append(b, `"id":`...)
		b = append(b, id...)
		b = append(b, ',')
	}
	b = append(b, `"error":{"code":`...)
	b = strconv.AppendInt(b, int64(e.Code), 10)
	b = append(b, `,"message":`...)
	b = append(b, msg...)
	return append(b, `}}`...)
}

// Result renders the JSON-RPC response that carries result, raw, for the
// request with the raw id.
func Result(id, result []byte) []byte { return bytes.Join(ResultParts(id, result), nil) }

// ResultParts is Result in parts, one of which is result as it is: a list is not
// copied for each answer.
func ResultParts(id, result []byte) [][]byte {
	const open, middle, end = `{"jsonrpc":"2.0","id":`, `,"result":`, `}`
	b := make([]byte, 0, len(open)+len(id)+len(middle)+len(end))
	b = append(append(append(b, open...), id...), middle...)
	head := len(b)
	b = append(b, end...)
	return [][]byte{b[:head:head], result, b[head:]}
}
