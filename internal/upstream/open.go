package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/registry"
)

// OpenParams is what the gateway says of itself, or of its client, when it opens
// a session. The zero value is the gateway itself.
type OpenParams struct {
	// Revision is the protocolVersion to ask for; empty for the newest of the
	// session era.
	Revision string
	// Capabilities and ClientInfo are the raw objects of initialize; nil for
	// none and for the gateway's own.
	Capabilities, ClientInfo json.RawMessage
}

// Opened is a new session.
type Opened struct {
	Ref
	// Result is the raw InitializeResult.
	Result json.RawMessage
	// ServerInfo and Capabilities are the raw objects in it, {} when absent.
	ServerInfo, Capabilities json.RawMessage
	// Instructions is the decoded text in it.
	Instructions string
}

// maxSessionID is the longest session id that is taken, in bytes.
const maxSessionID = 4 << 10

// Open opens a session: initialize, then notifications/initialized, whose 202 it
// awaits (Lifecycle, "Initialization"). Options.RequestTimeout bounds it beside
// ctx. The error is an [*RPCError] or an [*Error]; a server that speaks none of
// our revisions is ProtocolVersionUnsupported. Of a server with several addresses
// it takes any; Ref.Address says which.
func (c *Client) Open(ctx context.Context, p OpenParams) (*Opened, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.RequestTimeout)
	defer cancel()
	return c.openAny(ctx, p)
}

// openAt opens a session at one address.
func (c *Client) openAt(ctx context.Context, address string, p OpenParams) (*Opened, error) {
	result, header, err := c.call(ctx, Ref{Address: address}, mcp.MethodInitialize, c.initializeParams(p))
	if err != nil {
		return nil, initializeError(err)
	}
	o, err := parseInitialize(result)
	if err != nil {
		return nil, err
	}
	o.Address = address
	if o.ID = header.Get(mcp.HeaderSessionID); !validSessionID(o.ID) {
		return nil, protocolError(nil, "the server gives a session id that is too long or has characters that are not visible ASCII")
	}
	if _, known := mcp.ParseRevision(o.Revision); !known {
		c.abandon(ctx, o.Ref)
		return nil, &Error{
			Reason: registry.ReasonProtocolVersionUnsupported, Delivered: true,
			Message: fmt.Sprintf("the server speaks protocol version %.40q; supported are %s: update the server", o.Revision, strings.Join(mcp.SupportedVersions(), ", ")),
		}
	}
	if err := c.Notify(ctx, o.Ref, mcp.NotificationInitialized); err != nil {
		c.abandon(ctx, o.Ref)
		return nil, err
	}
	return o, nil
}

func (c *Client) initializeParams(p OpenParams) json.RawMessage {
	revision, capabilities, info := p.Revision, p.Capabilities, p.ClientInfo
	if revision == "" {
		revision = mcp.LatestSession().String()
	}
	if len(capabilities) == 0 {
		capabilities = json.RawMessage(`{}`)
	}
	if len(info) == 0 {
		info = fmt.Appendf(nil, `{"name":"patchbay","version":%q}`, c.opt.Version)
	}
	return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, revision, capabilities, info)
}

func validSessionID(id string) bool {
	if len(id) > maxSessionID {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e { // Transports, "Session Management"
			return false
		}
	}
	return true
}

// initializeError turns what a server says to initialize into a reason.
func initializeError(err error) error {
	rpc, ok := errors.AsType[*RPCError](err)
	if !ok {
		return err
	}
	e := &Error{Reason: registry.ReasonProtocolError, Delivered: true, Message: "the server refuses initialize: look into its log", cause: err}
	if rpc.Code == mcp.CodeMethodNotFound || strings.Contains(strings.ToLower(rpc.Message), "version") {
		e.Reason = registry.ReasonProtocolVersionUnsupported
		e.Message = fmt.Sprintf("the server speaks none of the supported protocol versions %s", strings.Join(mcp.SupportedVersions(), ", "))
	}
	return e
}

func parseInitialize(result json.RawMessage) (*Opened, error) {
	o := &Opened{Result: result, ServerInfo: json.RawMessage(`{}`), Capabilities: json.RawMessage(`{}`)}
	var wrong error
	err := jsonrpc.Fields(result, func(name string, _, value jsonrpc.Span) bool {
		raw := value.Of(result)
		switch name {
		case "protocolVersion":
			wrong = json.Unmarshal(raw, &o.Revision)
		case "instructions":
			wrong = json.Unmarshal(raw, &o.Instructions)
		case "serverInfo":
			o.ServerInfo = raw
		case "capabilities":
			o.Capabilities = raw
		}
		return wrong == nil
	})
	if err = errors.Join(err, wrong); err != nil {
		return nil, protocolError(err, "the server's answer to initialize is not an InitializeResult")
	}
	return o, nil
}

// Notify sends a notification without params and awaits that it was accepted.
func (c *Client) Notify(ctx context.Context, ref Ref, method string) error {
	body, err := requestBody("", method, nil)
	if err != nil {
		return err
	}
	resp, err := c.Post(ctx, ref, body, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	return refusal(resp, ref, "")
}

// Delete ends the session ref at the server. A server that has no sessions, does
// not let clients end them (405) or has forgotten this one is no error.
func (c *Client) Delete(ctx context.Context, ref Ref) error {
	if ref.ID == "" {
		return nil
	}
	resp, err := c.send(ctx, http.MethodDelete, ref.Address, c.configured(c.headers(ref, nil)), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 || resp.StatusCode == http.StatusMethodNotAllowed {
		return nil
	}
	if err := refusal(resp, ref, ""); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// abandon ends a session that is of no use; that it fails costs nothing but
// memory at the server.
func (c *Client) abandon(ctx context.Context, ref Ref) {
	if err := c.Delete(ctx, ref); err != nil {
		c.opt.Log.Debug("cannot end a session at the server", "error", err)
	}
}

// Probe learns how the server answers a request for a session that it does not
// know, by a ping with a made-up session id that looks like the one in ref: 404
// as specified, 400, or 0 when it serves the request. Without a session id in
// ref it returns 404 and asks nothing. The error is an [*Error].
func (c *Client) Probe(ctx context.Context, ref Ref) (int, error) {
	if ref.ID == "" {
		return http.StatusNotFound, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.PingTimeout)
	defer cancel()
	body, err := requestBody("0", mcp.MethodPing, nil)
	if err != nil {
		return 0, err
	}
	made := Ref{ID: madeUp(ref.ID), Revision: ref.Revision, Address: ref.Address}
	resp, err := c.Post(ctx, made, body, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // lets the connection be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		c.abandon(ctx, made) // it may have made a session of it
		return 0, nil
	case resp.StatusCode == http.StatusBadRequest:
		return http.StatusBadRequest, nil
	}
	return http.StatusNotFound, nil
}

// madeUp returns an id of the same form as id, in case the server checks that:
// letters and digits in its second half are replaced by others of their kind.
// Short ids get a tail, so that nobody else's is met.
func madeUp(id string) string {
	b := []byte(id)
	replaced := 0
	for i := len(b) / 2; i < len(b); i++ {
		replaced++
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			b[i] = '0' + (c-'0'+1+byte(rand.IntN(9)))%10
		case c >= 'a' && c <= 'f':
			b[i] = 'a' + (c-'a'+1+byte(rand.IntN(5)))%6
		case c >= 'A' && c <= 'F':
			b[i] = 'A' + (c-'A'+1+byte(rand.IntN(5)))%6
		case c >= 'g' && c <= 'z':
			b[i] = 'g' + (c-'g'+1+byte(rand.IntN(19)))%20
		case c >= 'G' && c <= 'Z':
			b[i] = 'G' + (c-'G'+1+byte(rand.IntN(19)))%20
		default:
			replaced--
		}
	}
	const enough = 8
	if replaced < enough {
		return fmt.Sprintf("%s-%016x", b, rand.Uint64())
	}
	return string(b)
}
