package router

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
)

// maxQuoted bounds how much of a client's text an error message repeats.
const maxQuoted = 200

func clip(s string) string {
	if len(s) > maxQuoted {
		return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
	}
	return s
}

// errBody also gives the request the id that the scanner found in spite of the
// fault.
func errBody(err error, r *Request) *mcp.Error {
	e := &mcp.Error{
		Code: mcp.CodeParseError, Message: err.Error(),
		Reason: mcp.ReasonParseError, Status: http.StatusBadRequest,
	}
	if je, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Message.ID = je.ID
		if je.Code == mcp.CodeInvalidRequest {
			e.Code, e.Reason = mcp.CodeInvalidRequest, mcp.ReasonInvalidRequest
		}
	}
	return e
}

// errTooLarge is HTTP 413, for bodies over limit bytes.
func errTooLarge(limit int64) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonTooLarge, Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("the request body is over the limit of %d bytes", limit),
	}
}

// ErrNoSession is the error for a request without a session id.
func ErrNoSession() *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonNoSession, Status: http.StatusBadRequest,
		Message: "the Mcp-Session-Id header is missing: send initialize first",
	}
}

// ErrSession is the error for a session id that the table does not accept.
func ErrSession(err error) *mcp.Error {
	msg := "session not found: send initialize again"
	switch {
	case errors.Is(err, session.ErrEnded):
		msg = "the session has ended: send initialize again"
	case errors.Is(err, session.ErrExpired):
		msg = "the session has expired: send initialize again"
	}
	return &mcp.Error{
		Code: mcp.CodeSessionNotFound, Reason: mcp.ReasonSessionUnknown, Status: http.StatusNotFound, Message: msg,
	}
}

// errVersion has code -32000, not -32022: with HTTP 400 that makes clients that
// probe for 2026-07-28 fall back to initialize (reference: recorded clients).
func errVersion(version string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeServer, Reason: mcp.ReasonVersion, Status: http.StatusBadRequest,
		Message: fmt.Sprintf("unsupported protocol version %q (supported: %s)",
			clip(version), strings.Join(mcp.SupportedVersions(), ", ")),
	}
}

func errVirtualServer(name string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidParams, Reason: mcp.ReasonNotFound, Status: http.StatusNotFound,
		Message: fmt.Sprintf("virtual server not found: %s", clip(name)),
	}
}

func errMethod(method string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeMethodNotFound, Reason: mcp.ReasonMethodUnknown, Status: http.StatusOK,
		Message: "Method not found: " + clip(method),
	}
}

func errParams(msg string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidParams, Reason: mcp.ReasonInvalidParams, Status: http.StatusOK, Message: msg,
	}
}

// errNotFound's text is what the requirements promise: "Tool not found: NAME".
func errNotFound(what, name string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidParams, Reason: mcp.ReasonNotFound, Status: http.StatusOK,
		Message: what + " not found: " + clip(name),
	}
}

// errResource has the code of the session era (2025-11-25, Resources, "Error
// Handling").
func errResource(uri string) *mcp.Error {
	e := errNotFound("Resource", uri)
	e.Code = mcp.CodeResourceNotFound
	return e
}

func errAmbiguous(uri string, owners []*registry.Server) *mcp.Error {
	names := make([]string, len(owners))
	for i, o := range owners {
		names[i] = mcp.QualifyURI(o.Config.Name, uri)
	}
	return errParams("several servers have this resource; ask for one of " + clip(strings.Join(names, ", ")))
}

// ErrUnavailable is the error for a call to a server that cannot be reached.
func ErrUnavailable(server string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeUnavailable, Reason: mcp.ReasonUnavailable, Status: http.StatusServiceUnavailable,
		Message: fmt.Sprintf("server %q is unavailable; the gateway keeps trying to reach it", server),
	}
}
