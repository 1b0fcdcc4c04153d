package router

import (
	"net/http"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
)

// Way is the way that a request takes.
type Way uint8

// The ways.
const (
	// Broker: the broker serves the request. It is the zero value, because it is
	// the way that can do everything.
	Broker Way = iota
	// Reply: the answer is in the Decision.
	Reply
	// Direct: Envoy sends the request to the backend's cluster.
	Direct
)

// String is the `way` label of the request metrics.
func (w Way) String() string { return [...]string{"broker", "reply", "direct"}[w] }

// Decision is what becomes of a request.
type Decision struct {
	Way Way
	// Method is the JSON-RPC method, bounded for metrics (mcp.MethodLabel).
	Method string
	// Status and Body are the HTTP answer of a Reply, the Body in parts: a list is
	// one of them, shared by all answers, so they must not be changed. Err is set
	// when it is an error of the gateway's own.
	Status int
	Body   [][]byte
	Err    *mcp.Error
	// Session is the caller's session; nil for initialize and before it.
	Session *session.Session
	// Batch is where the messages of a batch stand in the body; nil for a single
	// message. The way is the broker's then.
	Batch []jsonrpc.Span
	// Call is set when the request goes to one backend, by whichever way.
	Call Call
}

// Call is a request for one backend.
type Call struct {
	// Server is the backend; nil when the request is not for one backend.
	Server *registry.Server
	// Backend is the caller's session with it; nil unless the way is Direct.
	Backend *session.Backend
	// Target is where the name (or URI) stands in the body, and Name what the
	// backend calls it.
	Target jsonrpc.Span
	Name   string
}

// AppendBody appends the body as the backend must get it: every byte as the
// client sent it, but for the name.
func (c *Call) AppendBody(dst, body []byte) []byte {
	return jsonrpc.AppendSplice(dst, body, c.Target, c.Name)
}

// TakeBody is AppendBody for a caller that gives the body away: it is changed in
// place where that is possible, and the Request's Message is of no use afterwards.
func (c *Call) TakeBody(body []byte) []byte {
	return jsonrpc.Splice(body, c.Target, c.Name)
}

// Outcome is the `outcome` label of the request metrics.
func (d *Decision) Outcome() string {
	switch {
	case d.Err != nil:
		return string(d.Err.Reason)
	case d.Way == Direct:
		return "routed"
	}
	return "ok"
}

// reply answers the request with the raw id.
func (d *Decision) reply(id, result []byte) {
	d.Way, d.Status, d.Body = Reply, http.StatusOK, mcp.ResultParts(id, result)
}

// Refuse turns the decision into the error e, for the client that calls itself
// userAgent and the request with the raw id.
func (d *Decision) Refuse(e *mcp.Error, userAgent string, id []byte) {
	d.Way, d.Err = Reply, e
	d.Status = mcp.ClientStatus(userAgent, e.Status)
	d.Body = [][]byte{e.Body(id)}
}
