package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
)

const (
	acceptBoth   = "application/json, text/event-stream"
	acceptStream = "text/event-stream"
	// maxAttempts is how often a request is sent that met a connection which
	// the server had closed before anything of the request was written.
	maxAttempts = 3
)

// Post sends body as it is, in the session ref, and returns the answer whatever
// its status, but for redirects, which are an [*Error]: they are not followed.
// The answer's body streams and is not decoded; the caller closes it. header
// holds further headers of the caller; those that are between the caller and the
// gateway or belong to one connection are left out, and those configured for the
// server win over all.
//
// The error is an [*Error]. A request is delivered at most once.
func (c *Client) Post(ctx context.Context, ref Ref, body []byte, header http.Header) (*http.Response, error) {
	h := c.headers(ref, header)
	h.Set("Accept", acceptBoth)
	h.Set("Content-Type", "application/json")
	return c.send(ctx, http.MethodPost, ref.Address, c.configured(h), body)
}

// send makes one request of any method, to the address unless it is empty. It
// repeats what was not delivered because a reused connection was closed.
func (c *Client) send(ctx context.Context, method, address string, h http.Header, body []byte) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		d := &delivery{}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, d.trace()), method, c.url, nil)
		if err != nil {
			return nil, networkError(err, false)
		}
		req.Header, req.Host = h, c.host
		if address != "" {
			req.URL.Host = address
		}
		if len(body) > 0 {
			req.Body = io.NopCloser(bytes.NewReader(body)) // and no GetBody: see delivery
			req.ContentLength = int64(len(body))
		}
		resp, err := c.tr.RoundTrip(req)
		if err != nil {
			delivered := d.happened(ctx, err)
			if !delivered && d.reused.Load() && attempt < maxAttempts && ctx.Err() == nil {
				continue
			}
			if !d.connected() && ctx.Err() == nil {
				c.places.failed(address)
			}
			return nil, networkError(err, delivered)
		}
		if resp.StatusCode < 200 { // 101: its body is the connection, which no context ends
			_ = resp.Body.Close()
			return nil, protocolError(nil, "the server answered with HTTP %d, which was not asked for", resp.StatusCode)
		}
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			_ = resp.Body.Close() // only the status counts
			e := protocolError(nil, "the server redirects to another address (HTTP %d): set its url to the final one", resp.StatusCode)
			e.Status = resp.StatusCode
			return nil, e
		}
		return resp, nil
	}
}

// headers returns the headers of a request in the session ref: what of extra may
// travel, then ours.
func (c *Client) headers(ref Ref, extra http.Header) http.Header {
	h := make(http.Header, len(extra)+len(c.header)+6)
	for name, values := range extra {
		if !stays(name) {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	for _, list := range extra["Connection"] { // RFC 9110, section 7.6.1
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "patchbay/"+c.opt.Version)
	}
	if ref.ID != "" {
		h.Set(mcp.HeaderSessionID, ref.ID)
	}
	h.Del(mcp.HeaderProtocolVersion)
	if r, known := mcp.ParseRevision(ref.Revision); known && r.VersionHeader() {
		h.Set(mcp.HeaderProtocolVersion, ref.Revision)
	}
	return h
}

// configured lays the server's configured headers over h.
func (c *Client) configured(h http.Header) http.Header {
	for name, values := range c.header {
		h[name] = values
	}
	return h
}

// stays tells whether a header of the caller must not travel to the server.
func stays(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te",
		"trailer", "transfer-encoding", "upgrade", // of one connection
		"host", "content-length", "expect", // net/http makes them
		"accept-encoding": // a compressed answer could not be read on the way
		return true
	}
	for _, private := range mcp.PrivateHeaders {
		if name == private {
			return true
		}
	}
	return strings.HasPrefix(name, private.HeaderPrefix)
}
