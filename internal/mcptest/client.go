package mcptest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tmaxmax/go-sse"

	"patchbay.dev/internal/mcp"
)

// maxEvent is the largest SSE event that the client reads, in bytes.
const maxEvent = 64 << 20

// Client is a minimal MCP client that sends bytes as they are given and returns
// bytes as they came. Set the exported fields before the first request.
type Client struct {
	// URL is the MCP endpoint.
	URL string
	// HTTP sends the requests. It follows no redirects and decodes nothing.
	HTTP *http.Client
	// Header is sent with every request, over the client's own headers.
	Header http.Header
	// Revision is asked of the server, and afterwards what it answered.
	Revision string
	// Capabilities and Info are the raw objects of initialize.
	Capabilities, Info string
	// Session is the session id that initialize gave.
	Session string

	tb testing.TB

	mu sync.Mutex
	id int // guarded by mu: the last request id
}

// NewClient returns a client of the MCP endpoint at url; it ends with the test.
// Its session is not deleted by itself.
func NewClient(tb testing.TB, url string) *Client {
	tr := &http.Transport{DisableCompression: true}
	tb.Cleanup(tr.CloseIdleConnections)
	return &Client{
		URL: url,
		HTTP: &http.Client{
			Transport:     tr,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Header:       http.Header{},
		Revision:     mcp.LatestSession().String(),
		Capabilities: `{}`,
		Info:         `{"name":"mcptest","version":"1.0.0"}`,
		tb:           tb,
	}
}

// Answer is what came back for one POST or DELETE.
type Answer struct {
	// Status is the HTTP status; 0 when there was none (see Err).
	Status int
	Header http.Header
	// Body holds the exact bytes of the response body.
	Body []byte
	// Message is the JSON-RPC response: the body in JSON, in SSE the data of
	// the last event. Nil when there is none.
	Message json.RawMessage
	// Events holds the data of all SSE events that have some, in order.
	Events []json.RawMessage
	// Err says why the answer did not come whole.
	Err error
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

func (a *Answer) message() rpcMessage {
	var m rpcMessage
	_ = json.Unmarshal(a.Message, &m) // not a message: nothing in it
	return m
}

// Result returns the raw result, nil when the answer is not one.
func (a *Answer) Result() json.RawMessage { return a.message().Result }

// ID returns the raw id.
func (a *Answer) ID() json.RawMessage { return a.message().ID }

// Code returns the code of the JSON-RPC error, 0 when the answer is not one.
func (a *Answer) Code() int {
	if e := a.message().Error; e != nil {
		return e.Code
	}
	return 0
}

// ErrorMessage returns the text of the JSON-RPC error.
func (a *Answer) ErrorMessage() string {
	if e := a.message().Error; e != nil {
		return e.Message
	}
	return ""
}

// String shows the answer in a failed test.
func (a *Answer) String() string {
	return fmt.Sprintf("status %d, err %v, body %s", a.Status, a.Err, a.Body)
}

// Initialize opens a session: initialize and notifications/initialized. It
// returns the answer to initialize; the test has failed when that is no result.
func (c *Client) Initialize() *Answer {
	c.tb.Helper()
	a := c.Call(mcp.MethodInitialize, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`,
		c.Revision, c.Capabilities, c.Info))
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(a.Result(), &result); err != nil {
		c.tb.Errorf("mcptest: initialize: %v", a)
		return a
	}
	c.Session, c.Revision = a.Header.Get(mcp.HeaderSessionID), result.ProtocolVersion
	if n := c.Post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); n.Status != http.StatusAccepted {
		c.tb.Errorf("mcptest: notifications/initialized: %v", n)
	}
	return a
}

// Call posts a request with the next id and raw params ("" for none).
func (c *Client) Call(method, params string) *Answer {
	c.mu.Lock()
	c.id++
	id := c.id
	c.mu.Unlock()
	if params != "" {
		params = `,"params":` + params
	}
	return c.Post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q%s}`, id, method, params))
}

// CallTool calls a tool with raw arguments.
func (c *Client) CallTool(name, arguments string) *Answer {
	return c.Call(mcp.MethodToolsCall, `{"name":`+quote(name)+`,"arguments":`+arguments+`}`)
}

// Post sends body as it is and reads the answer to its end. header adds headers
// for this request, as pairs of name and value; an empty value removes one.
func (c *Client) Post(body string, header ...string) *Answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.PostContext(ctx, body, header...)
}

// PostContext is [Client.Post] with the caller's time limit.
func (c *Client) PostContext(ctx context.Context, body string, header ...string) *Answer {
	return c.do(ctx, http.MethodPost, strings.NewReader(body), header...)
}

// Delete ends the session.
func (c *Client) Delete(header ...string) *Answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.do(ctx, http.MethodDelete, http.NoBody, header...)
}

func (c *Client) request(ctx context.Context, method string, body io.Reader, header []string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Session != "" {
		req.Header.Set(mcp.HeaderSessionID, c.Session)
		if r, ok := mcp.ParseRevision(c.Revision); !ok || r.VersionHeader() {
			req.Header.Set(mcp.HeaderProtocolVersion, c.Revision)
		}
	}
	for k, v := range c.Header {
		req.Header[k] = v
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return req, nil
}

func (c *Client) do(ctx context.Context, method string, body io.Reader, header ...string) *Answer {
	req, err := c.request(ctx, method, body, header)
	if err != nil {
		return &Answer{Err: err}
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return &Answer{Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := &Answer{Status: resp.StatusCode, Header: resp.Header}
	a.Body, a.Err = io.ReadAll(resp.Body)
	if !isEventStream(resp.Header) {
		if json.Valid(a.Body) {
			a.Message = a.Body
		}
		return a
	}
	for ev, err := range sse.Read(bytes.NewReader(a.Body), &sse.ReadConfig{MaxEventSize: maxEvent}) {
		if err != nil {
			a.Err = fmt.Errorf("event stream: %w", err)
			return a
		}
		if ev.Data != "" {
			a.Message = json.RawMessage(ev.Data)
			a.Events = append(a.Events, a.Message)
		}
	}
	return a
}

func isEventStream(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && t == "text/event-stream"
}

// Trust makes the client accept servers with certificates of the authority in
// caPEM, and no others, and speak HTTP/2 with those that offer it.
func (c *Client) Trust(caPEM []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		return errors.New("mcptest: no certificate in the PEM")
	}
	tr := &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	c.tb.Cleanup(tr.CloseIdleConnections)
	c.HTTP.Transport = tr
	return nil
}
