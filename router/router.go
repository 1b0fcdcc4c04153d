package router

import (
	"errors"
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
	// Origins are the web origins that may send requests.
	Origins Origins
	// PageSize is how many items a list has at most, 0 for all; if it is not 0,
	// Seals is needed.
	PageSize int
	Seals    Seals
}

// Request is one POSTed message: what a decision depends on.
type Request struct {
	// Body is the whole body. The Decision refers to it.
	Body []byte
	// SessionID, Version, UserAgent and VirtualServer are the values of the
	// headers Mcp-Session-Id, MCP-Protocol-Version, User-Agent and
	// X-Mcp-Virtualserver, empty when absent.
	SessionID, Version, UserAgent, VirtualServer string
	// Origin, Accept and ContentType are the values of the headers of that
	// name, those of several joined by commas.
	Origin, Accept, ContentType string
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
	if d.Session == nil || d.Batch != nil { // initialize, or for the broker to take apart
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

// maxURI is the longest resource URI in bytes; the registry lists none longer.
const maxURI = 8 << 10

// SmallBody is how large a body, in bytes, anybody may send: an initialize, and
// most calls, are smaller.
const SmallBody = 64 << 10

// Stranger is the decision on a request that turns out to have a large body,
// before all of it was read: nil when its session is good.
func (rt *Router) Stranger(r *Request) *Decision {
	e := ErrNoSession()
	if r.SessionID != "" {
		_, err := rt.Sessions.Find(r.SessionID, r.Principal)
		if err == nil {
			return nil
		}
		e = ErrSession(err)
	}
	d := Decision{Method: mcp.MethodOther}
	d.Refuse(e, r.UserAgent, nil)
	return &d
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
	if e := rt.checkHTTP(r); e != nil {
		return e
	}
	if int64(len(r.Body)) > rt.BodyLimit {
		return errTooLarge(rt.BodyLimit)
	}
	err := jsonrpc.Scan(r.Body, &r.Message)
	isBatch := errors.Is(err, jsonrpc.ErrBatch)
	if err != nil && !isBatch {
		return errBody(err, r)
	}
	d.Method = label(&r.Message, isBatch)
	if r.Message.Kind == jsonrpc.Request && d.Method == mcp.MethodInitialize {
		return nil
	}
	if e := CheckVersion(r.Version); e != nil {
		return e
	}
	if r.SessionID == "" {
		return ErrNoSession()
	}
	s, serr := rt.Sessions.Find(r.SessionID, r.Principal)
	if serr != nil {
		return ErrSession(serr)
	}
	if r.VirtualServer != "" {
		return errVirtualServer(r.VirtualServer)
	}
	d.Session = s
	if isBatch {
		return rt.batch(r, d, err)
	}
	return nil
}

func label(m *jsonrpc.Message, isBatch bool) string {
	switch {
	case isBatch:
		return mcp.MethodBatch
	case m.Kind == jsonrpc.Response:
		return mcp.MethodResponse
	}
	return mcp.MethodLabel(m.Method.Value)
}

// batch takes a batch apart where the session's revision has them; refusal is
// what it is elsewhere. The members are decided on one by one, by the broker.
func (rt *Router) batch(r *Request, d *Decision, refusal error) *mcp.Error {
	if rev, ok := mcp.RevisionByOrdinal(d.Session.Claims().Revision); !ok || !rev.Batches() {
		return errBody(refusal, r)
	}
	members, err := jsonrpc.Batch(r.Body, maxBatch)
	if err != nil {
		return errBody(err, r)
	}
	d.Batch = members
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
		d.reply(r.ID(), []byte("{}"))
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
	case mcp.MethodResourcesRead, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		return rt.resource(r, d, view)
	case mcp.MethodComplete:
		return rt.complete(r, d, view)
	case mcp.MethodSetLevel: // the broker's: the level is the client's, not a server's
	default:
		return errMethod(r.Message.Method.Value)
	}
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

// resource decides on a read or a subscription.
func (rt *Router) resource(r *Request, d *Decision, view *registry.View) *mcp.Error {
	uri := r.Message.URI
	if !uri.Present() {
		return errParams("params.uri is missing or not a string")
	}
	if len(uri.Value) > maxURI {
		return errParams("params.uri is over 8 KiB")
	}
	return rt.owner(r, d, view, uri)
}

// owner decides on a request about one resource.
func (rt *Router) owner(r *Request, d *Decision, view *registry.View, uri jsonrpc.Text) *mcp.Error {
	bare, owners := view.Resource(uri.Value)
	switch len(owners) {
	case 0:
		return errResource(uri.Value)
	case 1:
		return rt.call(r, d, Call{Server: owners[0], Target: uri.Span, Name: bare})
	}
	return errAmbiguous(uri.Value, owners)
}

// complete decides on a completion, which is about a prompt or a resource
// template (2025-11-25, Completion, "Reference Types").
func (rt *Router) complete(r *Request, d *Decision, view *registry.View) *mcp.Error {
	m := &r.Message
	switch {
	case m.RefType.Value == "ref/prompt" && m.RefName.Present():
		e, ok := view.Prompt(m.RefName.Value)
		if !ok {
			return errNotFound("Prompt", m.RefName.Value)
		}
		return rt.call(r, d, Call{Server: e.Server, Target: m.RefName.Span, Name: e.Original})
	case m.RefType.Value == "ref/resource" && m.RefURI.Present():
		if e, ok := view.Template(m.RefURI.Value); ok {
			return rt.call(r, d, Call{Server: e.Server, Target: m.RefURI.Span, Name: e.Original})
		}
		if e := rt.owner(r, d, view, m.RefURI); e != nil {
			e.Code = mcp.CodeInvalidParams // -32002 is for resources alone
			return e
		}
		return nil
	}
	return errParams(`params.ref must be {"type":"ref/prompt","name":...} or {"type":"ref/resource","uri":...}`)
}

// call chooses between the direct way and the broker's for a call to one server.
// Subscriptions are the broker's: a server has one however many clients ask, and
// one that ends needs no server.
func (rt *Router) call(r *Request, d *Decision, c Call) *mcp.Error {
	if d.Method == mcp.MethodUnsubscribe {
		d.Call = c
		return nil
	}
	if c.Server.State != registry.Ready {
		return ErrUnavailable(c.Server.Config.Name)
	}
	d.Call = c
	if d.Method == mcp.MethodSubscribe || needsBroker(d.Session, c.Server) || !c.Server.Direct() || mcp.Fragile(r.UserAgent) {
		return nil
	}
	if b, ok := d.Session.Backend(c.Server.Config.Name, c.Server.Cluster); ok {
		d.Way, d.Call.Backend = Direct, b
	}
	return nil
}

// needsBroker tells whether something may come in the middle of an answer that
// only the broker can deal with: a question for the client, or log messages that
// the client did not want and the server does not filter.
func needsBroker(s *session.Session, srv *registry.Server) bool {
	return mcp.Capabilities(s.Claims().Capabilities).Asks() || !srv.Logs && s.Level() != ""
}
