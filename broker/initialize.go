package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// maxInstructions bounds the instructions of all servers together.
const maxInstructions = 16 << 10

// initializeResult is the InitializeResult of the session era (2025-11-25,
// Lifecycle).
type initializeResult struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ServerInfo      serverInfo      `json:"serverInfo"`
	Instructions    string          `json:"instructions,omitempty"`
}

type serverInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// capabilities are the gateway's own: they do not depend on which servers are
// there now, because servers come and go within a session.
const capabilities = `{"logging":{},"completions":{},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"tools":{"listChanged":true}}`

// initialize opens a session and returns the outcome. It costs the backends
// nothing: their sessions are opened by the first call.
func (b *Broker) initialize(w http.ResponseWriter, r *http.Request, req *router.Request) string {
	var params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
	}
	if p := req.Message.Params; p.Present() {
		if err := json.Unmarshal(p.Of(req.Body), &params); err != nil {
			return b.badInitialize(w, r, req, "initialize: protocolVersion is not a string")
		}
	}
	if params.ProtocolVersion == "" {
		return b.badInitialize(w, r, req, "initialize: params.protocolVersion is missing")
	}
	rev := mcp.Negotiate(params.ProtocolVersion)
	caps, err := mcp.ParseCapabilities(params.Capabilities)
	if err != nil {
		return b.badInitialize(w, r, req, "initialize: params.capabilities is not of the specified form")
	}
	_, token := b.Sessions.New(session.Claims{Revision: rev.Ordinal(), Capabilities: uint32(caps)})
	result, err := json.Marshal(initializeResult{
		ProtocolVersion: rev.String(),
		Capabilities:    json.RawMessage(capabilities),
		ServerInfo:      serverInfo{Name: "patchbay", Title: "Patchbay", Version: b.Version},
		Instructions:    instructions(b.Registry.Snapshot()),
	})
	if err != nil { // cannot happen: strings and a constant
		panic(fmt.Sprintf("initialize result: %v", err))
	}
	w.Header().Set(mcp.HeaderSessionID, token)
	writeJSON(w, http.StatusOK, mcp.Result(req.ID(), result))
	return "ok"
}

func (b *Broker) badInitialize(w http.ResponseWriter, r *http.Request, req *router.Request, msg string) string {
	e := &mcp.Error{Code: mcp.CodeInvalidParams, Message: msg, Reason: mcp.ReasonInvalidParams, Status: http.StatusOK}
	b.refuse(w, r, e, req.ID())
	return string(e.Reason)
}

// instructions joins what the servers tell the model about themselves, each
// under the prefix by which it knows their tools.
func instructions(s *registry.Snapshot) string {
	var out strings.Builder
	for _, srv := range s.Servers() {
		if srv.State != registry.Ready || srv.Info == nil || srv.Info.Instructions == "" {
			continue
		}
		part := srv.Info.Instructions
		if p := srv.Config.ToolPrefix(); p != "" {
			part = fmt.Sprintf("About the tools whose names start with %q:\n%s", p, part)
		}
		if out.Len()+len(part) > maxInstructions {
			continue
		}
		if out.Len() > 0 {
			out.WriteString("\n\n")
		}
		out.WriteString(part)
	}
	return out.String()
}
