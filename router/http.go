package router

import (
	"fmt"
	"net/http"

	"patchbay.dev/internal/mcp"
)

// maxBatch is how many messages a batch may have: a few requests at once are
// what the revision had in mind, and every one costs as much as a request.
const maxBatch = 50

// checkHTTP looks at what comes before the message.
func (rt *Router) checkHTTP(r *Request) *mcp.Error {
	switch {
	case r.Origin != "" && !rt.Origins.Allow(r.Origin):
		return ErrOrigin(r.Origin)
	case !mcp.IsJSON(r.ContentType):
		return &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonMedia, Status: http.StatusUnsupportedMediaType,
			Message: "send the message with Content-Type: application/json",
		}
	case !mcp.AcceptsAnswers(r.Accept):
		return &mcp.Error{
			Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonMedia, Status: http.StatusNotAcceptable,
			Message: "answers come as JSON or as an event stream: send Accept: application/json, text/event-stream",
		}
	}
	return nil
}

// CheckVersion judges an MCP-Protocol-Version header, empty when absent.
func CheckVersion(version string) *mcp.Error {
	if _, ok := mcp.ParseRevision(version); !ok && version != "" {
		return errVersion(version)
	}
	return nil
}

// ErrOrigin is the error for a request of a page that may not send any.
func ErrOrigin(origin string) *mcp.Error {
	return &mcp.Error{
		Code: mcp.CodeInvalidRequest, Reason: mcp.ReasonOrigin, Status: http.StatusForbidden,
		Message: fmt.Sprintf("pages of the origin %q may not use this endpoint; the operator can add it to origins", clip(origin)),
	}
}
