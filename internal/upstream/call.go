package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
)

// maxErrorBody is how much of the body of a refused request is read, in bytes.
const maxErrorBody = 16 << 10

// maxAsked is how many requests a server may make of us within one answer.
const maxAsked = 100

// Call makes a request with an id of its own, in the session ref, and returns
// the raw result. params is encoded by encoding/json, or taken as it is when it
// is a json.RawMessage; nil leaves params out. The answer may be JSON or an
// event stream; a ping in the stream is answered, other requests are refused,
// notifications are ignored.
//
// The error is an [*RPCError] when the server answered with one, else an
// [*Error], with [ErrLost] in its chain when the session is gone.
func (c *Client) Call(ctx context.Context, ref Ref, method string, params any) (json.RawMessage, error) {
	result, _, err := c.call(ctx, ref, method, params)
	return result, err
}

func (c *Client) call(ctx context.Context, ref Ref, method string, params any) (json.RawMessage, http.Header, error) {
	id := strconv.FormatInt(c.lastID.Add(1), 10)
	body, err := requestBody(id, method, params)
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.Post(ctx, ref, body, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var raw []byte
	switch t := mediaType(resp.Header); {
	case resp.StatusCode != http.StatusOK:
		return nil, nil, refusal(resp, ref, id)
	case t == "application/json":
		raw, err = c.readAll(resp.Body)
	case t == acceptStream:
		raw, err = c.readResponse(ctx, ref, resp.Body, id)
	default:
		err = protocolError(nil, "the server answers with %s, not with JSON or an event stream: check that its url is that of an MCP endpoint", orNothing(t))
	}
	if err != nil {
		return nil, nil, err
	}
	result, err := resultOf(raw, id)
	return result, resp.Header, err
}

func orNothing(mediaType string) string {
	if mediaType == "" {
		return "no content type"
	}
	return fmt.Sprintf("%.80q", mediaType)
}

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return ""
	}
	return t
}

func requestBody(id, method string, params any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0",`)
	if id != "" {
		b.WriteString(`"id":` + id + `,`)
	}
	b.WriteString(`"method":"` + method + `"`) // one of ours, nothing to escape
	switch p := params.(type) {
	case nil:
	case json.RawMessage:
		b.WriteString(`,"params":`)
		b.Write(p)
	default:
		raw, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("upstream: params of %s: %w", method, err)
		}
		b.WriteString(`,"params":`)
		b.Write(raw)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (c *Client) readAll(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, c.opt.Limits.Answer+1))
	if err != nil {
		return nil, networkError(err, true)
	}
	if int64(len(raw)) > c.opt.Limits.Answer {
		return nil, limitError("the server's answer is larger than %d bytes", c.opt.Limits.Answer)
	}
	return raw, nil
}

// readResponse reads an event stream until the response with the id.
func (c *Client) readResponse(ctx context.Context, ref Ref, body io.Reader, id string) ([]byte, error) {
	var found []byte
	asked := 0
	err := c.readEvents(body, func(ev Event) error {
		if ev.Data == "" {
			return nil
		}
		var m jsonrpc.Message
		raw := []byte(ev.Data)
		if err := jsonrpc.Scan(raw, &m); err != nil {
			return notMessage(err)
		}
		switch {
		case m.Kind == jsonrpc.Response && string(m.ID.Of(raw)) == id:
			found = raw
			return errEnough
		case m.Kind == jsonrpc.Request:
			if asked++; asked > maxAsked {
				return limitError("the server makes more than %d requests while it should answer one", maxAsked)
			}
			return c.reply(ctx, ref, &m)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, networkError(io.ErrUnexpectedEOF, true)
	}
	return found, nil
}

// reply answers a request of the server. A watcher declares every capability, so
// that it sees every tool, and has nobody to ask: there are no roots, and all
// else is refused.
func (c *Client) reply(ctx context.Context, ref Ref, m *jsonrpc.Message) error {
	id := m.ID.Of(m.Raw)
	var body []byte
	switch m.Method.Value {
	case mcp.MethodPing:
		body = mcp.Result(id, []byte(`{}`))
	case mcp.MethodRootsList:
		body = mcp.Result(id, []byte(`{"roots":[]}`))
	case mcp.MethodElicit:
		body = mcp.Result(id, []byte(`{"action":"decline"}`))
	default:
		body = (&mcp.Error{Code: mcp.CodeMethodNotFound, Message: "Method not found"}).Body(id)
	}
	resp, err := c.Post(ctx, ref, body, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func notMessage(err error) *Error {
	return protocolError(err, "the server sent something that is not a JSON-RPC message: %v", err)
}

// resultOf returns the result of the response raw, which must have the id.
func resultOf(raw []byte, id string) (json.RawMessage, error) {
	var m jsonrpc.Message
	if err := jsonrpc.Scan(raw, &m); err != nil {
		return nil, notMessage(err)
	}
	if m.Kind != jsonrpc.Response || string(m.ID.Of(raw)) != id {
		return nil, protocolError(nil, "the server answered a request with a message that is not the response to it")
	}
	if !m.Error.Present() {
		return m.Result.Of(raw), nil
	}
	e := &RPCError{}
	if err := json.Unmarshal(m.Error.Of(raw), e); err != nil {
		return nil, protocolError(err, "the server answered with an error object that is none")
	}
	return nil, e
}

// refusal makes an error of an answer whose status is not 200.
func refusal(resp *http.Response, ref Ref, id string) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what can be read is enough
	e := statusError(resp.StatusCode, body, ref.ID != "")
	if errors.Is(e, ErrLost) || resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return e
	}
	if _, err := resultOf(body, id); err != nil {
		if rpc, ok := errors.AsType[*RPCError](err); ok {
			return rpc
		}
	}
	return e
}
