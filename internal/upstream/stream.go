package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tmaxmax/go-sse"

	"patchbay.dev/internal/mcp"
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
	resp, err := c.send(ctx, http.MethodGet, c.configured(h), nil)
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
	r := &eventReader{src: bufio.NewReaderSize(body, 16<<10), max: limit}
	// The reader refuses what is too long before the parser would.
	for ev, err := range sse.Read(r, &sse.ReadConfig{MaxEventSize: limit + 64<<10}) {
		switch {
		case errors.Is(err, errEventTooLong), errors.Is(err, bufio.ErrTooLong):
			return limitError("an event of the server's stream is larger than %d bytes", limit)
		case err != nil:
			return networkError(err, true)
		}
		if err := on(Event{ID: ev.LastEventID, Type: ev.Type, Data: ev.Data}); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	return nil
}

var errEventTooLong = errors.New("upstream: event too long")

// eventReader hands an event stream on in whole events. The parser looks
// through all it has again at every read: an event of 16 MiB that comes in
// pieces of 4 KiB took it 26 s, in one piece 0.3 s (2 cores of an AMD EPYC).
// Lines that end in a lone CR, which the standard allows and nobody sends, are
// handed on when the stream ends. It is used by one goroutine.
type eventReader struct {
	src *bufio.Reader
	max int
	buf []byte // the event
	off int    // how much of buf was handed on
	err error  // of src; to be given when buf was handed on
}

// keepBuffer is the largest buffer that is kept from one event to the next.
const keepBuffer = 64 << 10

func (r *eventReader) Read(p []byte) (int, error) {
	if r.off == len(r.buf) {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.buf[r.off:])
	r.off += n
	if n == 0 {
		return 0, r.err
	}
	return n, nil
}

// fill reads up to and including the next empty line.
func (r *eventReader) fill() {
	if cap(r.buf) > keepBuffer {
		r.buf = nil
	}
	r.buf, r.off = r.buf[:0], 0
	for lineStart := 0; ; {
		part, err := r.src.ReadSlice('\n')
		if len(r.buf)+len(part) > r.max {
			r.buf, r.err = r.buf[:0], errEventTooLong
			return
		}
		r.buf = append(r.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue // the line goes on
		case err != nil:
			r.err = err
			return
		}
		if line := r.buf[lineStart:]; len(line) == 1 || (len(line) == 2 && line[0] == '\r') {
			return
		}
		lineStart = len(r.buf)
	}
}
