package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/sse"
)

// Event is one event of a server's stream (HTML Living Standard, section 9.2.6).
type Event struct {
	// ID is the last event id so far, for resuming; empty when none came.
	ID string
	// Type is empty for the default, "message".
	Type string
	// Data is one JSON-RPC message, or empty in an event that only sets ID.
	Data string
}

// errEnough ends the reading of a stream without an error.
var errEnough = errors.New("upstream: enough")

// Stream opens the GET stream of the session ref and calls on for each event
// until the stream ends, which gives nil, ctx ends, or on returns an error,
// which is returned. lastEventID, when not empty, asks the server to resume.
// Other errors are [ErrNoStream] where the server offers none, or an [*Error].
func (c *Client) Stream(ctx context.Context, ref Ref, lastEventID string, on func(Event) error) error {
	body, err := c.openStream(ctx, ref, lastEventID)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	return c.readEvents(body, on)
}

// openStream returns when the headers of the answer have come.
func (c *Client) openStream(ctx context.Context, ref Ref, lastEventID string) (io.ReadCloser, error) {
	h := c.headers(ref, nil)
	h.Set("Accept", acceptStream)
	if lastEventID != "" {
		h.Set(mcp.HeaderLastEventID, lastEventID)
	}
	resp, err := c.send(ctx, http.MethodGet, ref.Address, c.configured(h), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && mediaType(resp.Header) == acceptStream {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what can be read is enough
	if e := statusError(resp.StatusCode, body, ref.ID != ""); errors.Is(e, ErrLost) || !offersNone(resp.StatusCode) {
		return nil, e
	}
	return nil, ErrNoStream
}

// offersNone tells whether the status of an answer to GET, which is no stream,
// means that there never will be one. 405 is what the specification says;
// sessionless servers in use also answer 400, 404, 406, or 200 with a page. 409
// means that the last stream is not quite closed yet.
func offersNone(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError || status == http.StatusNotImplemented
}

// readEvents calls on for each event of body.
func (c *Client) readEvents(body io.Reader, on func(Event) error) error {
	limit := c.opt.Limits.Event
	r := sse.NewReader(body, limit)
	lastID := ""
	for {
		ev, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, sse.ErrTooLarge):
			return limitError("an event of the server's stream is larger than %d bytes", limit)
		case err != nil:
			return networkError(err, true)
		}
		if ev.HasID {
			lastID = ev.ID
		} else if ev.Data == nil {
			continue // a comment
		}
		if err := on(Event{ID: lastID, Type: ev.Name, Data: string(ev.Data)}); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
}
