package router

import (
	"net/http"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
)

// Sessions finds the session of an id, in memory only.
type Sessions interface {
	Find(token, principal string) (*session.Session, error)
}

// Catalog gives the current Snapshot.
type Catalog interface {
	Snapshot() *registry.Snapshot
}

// Router decides. Its fields are not changed after the first decision.
type Router struct {
	Sessions Sessions
	Catalog  Catalog
	// BodyLimit is the largest body in bytes.
	BodyLimit int64
}

// Request is one POSTed message: what a decision depends on.
type Request struct {
	// Body is the whole body. The Decision refers to it.
	Body []byte
	// SessionID, Version, UserAgent and VirtualServer are the values of the
	// headers Mcp-Session-Id, MCP-Protocol-Version, User-Agent and
	// X-Mcp-Virtualserver, empty when absent.
	SessionID, Version, UserAgent, VirtualServer string
	// Principal is who the caller is; empty where nobody is asked.
	Principal string

	// Message is the scanned body; Decide fills it in.
	Message jsonrpc.Message
}

// ID returns the raw id of the message, nil when it has none.
func (r *Request) ID() []byte {
	if !r.Message.ID.Present() {
		return nil
	}
	return r.Message.ID.Of(r.Body)
}

// Decide decides on one request.
func (rt *Router) Decide(r *Request) Decision {
	var d Decision
	if e := rt.admit(r, &d); e != nil {
		d.Refuse(e, r.UserAgent, r.ID())
		return d
	}
	if d.Session == nil { // initialize
		return d
	}
	if e := rt.dispatch(r, &d); e != nil {
		d.Refuse(e, r.UserAgent, r.ID())
	}
	return d
}

// TooLarge is the decision on a request whose body is over the limit. The id is
// not known then.
func (rt *Router) TooLarge(userAgent string) Decision {
	d := Decision{Method: mcp.MethodOther}
	d.Refuse(errTooLarge(rt.BodyLimit), userAgent, nil)
	return d
}

// Overloaded is the decision on a request that finds the gateway's memory for
// bodies taken.
func Overloaded(userAgent string) Decision {
	d := Decision{Method: mcp.MethodOther}
	d.Refuse(&mcp.Error{
		Code: mcp.CodeServer, Reason: mcp.ReasonOverloaded, Status: http.StatusServiceUnavailable,
		Message: "the gateway holds too many large requests; try again",
	}, userAgent, nil)
	return d
}

// admit reads the message and finds its session.
func (rt *Router) admit(r *Request, d *Decision) *mcp.Error {
	d.Method = mcp.MethodOther
	if int64(len(r.Body)) > rt.BodyLimit {
		return errTooLarge(rt.BodyLimit)
	}
	if err := jsonrpc.Scan(r.Body, &r.Message); err != nil {
		return errBody(err, r)
	}
	d.Method = mcp.MethodLabel(r.Message.Method.Value)
	if r.Message.Kind == jsonrpc.Response {
		d.Method = mcp.MethodResponse
	}
	if r.Message.Kind == jsonrpc.Request && d.Method == mcp.MethodInitialize {
		return nil
	}
	if r.Version != "" {
		if _, ok := mcp.ParseRevision(r.Version); !ok {
			return errVersion(r.Version)
		}
	}
	if r.SessionID == "" {
		return ErrNoSession()
	}
	s, err := rt.Sessions.Find(r.SessionID, r.Principal)
	if err != nil {
		return ErrSession(err)
	}
	if r.VirtualServer != "" {
		return errVirtualServer(r.VirtualServer)
	}
	d.Session = s
	return nil
}

// dispatch decides by the method. The caller's session is known.
func (rt *Router) dispatch(r *Request, d *Decision) *mcp.Error {
	if r.Message.Kind != jsonrpc.Request {
		return nil // the broker takes notifications and responses
	}
	view := rt.Catalog.Snapshot().Full()
	switch d.Method {
	case mcp.MethodPing:
		d.reply(mcp.Result(r.ID(), []byte("{}")))
	case mcp.MethodToolsList:
		return rt.list(r, d, view, registry.Tools)
	case mcp.MethodPromptsList:
		return rt.list(r, d, view, registry.Prompts)
	case mcp.MethodResourcesList:
		return rt.list(r, d, view, registry.Resources)
	case mcp.MethodTemplatesList:
		return rt.list(r, d, view, registry.Templates)
	case mcp.MethodToolsCall:
		return rt.named(r, d, view.Tool, "Tool")
	case mcp.MethodPromptsGet:
		return rt.named(r, d, view.Prompt, "Prompt")
	case mcp.MethodResourcesRead:
		return rt.resource(r, d, view)
	default:
		return errMethod(r.Message.Method.Value)
	}
	return nil
}

// list answers a list method from the View's rendered bytes. There is one page,
// so no cursor can be ours.
func (rt *Router) list(r *Request, d *Decision, view *registry.View, k registry.Kind) *mcp.Error {
	if c := r.Message.Cursor; c.Present() {
		return errParams("invalid cursor: the list has one page; ask without a cursor")
	}
	d.reply(mcp.Result(r.ID(), view.List(k)))
	return nil
}

// named decides on a call to a tool or prompt.
func (rt *Router) named(r *Request, d *Decision, find func(string) (*registry.Entry, bool), what string) *mcp.Error {
	name := r.Message.Name
	if !name.Present() {
		return errParams("params.name is missing or not a string")
	}
	e, ok := find(name.Value)
	if !ok {
		return errNotFound(what, name.Value)
	}
	return rt.call(r, d, Call{Server: e.Server, Target: name.Span, Name: e.Original})
}

// resource decides on a read.
func (rt *Router) resource(r *Request, d *Decision, view *registry.View) *mcp.Error {
	uri := r.Message.URI
	if !uri.Present() {
		return errParams("params.uri is missing or not a string")
	}
	bare, owners := view.Resource(uri.Value)
	switch len(owners) {
	case 0:
		return errResource(uri.Value)
	case 1:
		return rt.call(r, d, Call{Server: owners[0], Target: uri.Span, Name: bare})
	}
	return errAmbiguous(uri.Value, owners)
}

// call chooses between the direct way and the broker's for a call to one server.
func (rt *Router) call(r *Request, d *Decision, c Call) *mcp.Error {
	if c.Server.State != registry.Ready {
		return ErrUnavailable(c.Server.Config.Name)
	}
	d.Call = c
	if !c.Server.Direct() || mcp.Fragile(r.UserAgent) {
		return nil
	}
	if b, ok := d.Session.Backend(c.Server.Config.Name, c.Server.Cluster); ok {
		d.Way, d.Call.Backend = Direct, b
	}
	return nil
}
