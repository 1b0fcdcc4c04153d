package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/sse"
	"patchbay.dev/internal/upstream"
)

const (
	// pollPause is the pause before a backend that closed its stream is asked
	// for the rest, where it did not say how long; minPollPause and maxPollPause
	// bound what it can say.
	pollPause    = time.Second
	minPollPause = 10 * time.Millisecond
	maxPollPause = time.Minute
	// pollTries is how often in a row that may fail.
	pollTries = 3
)

// errAnswered ends the reading of a stream that has brought the answer.
var errAnswered = errors.New("answered")

// relayed is the event stream of a call on its way from the backend to the
// client. It belongs to the request's goroutine.
type relayed struct {
	x        *exchange
	src      *source
	stream   *callStream   // nil in a batch, whose stream is that of many calls
	primes   bool          // the client wants a priming event
	last     string        // the last event id that the backend gave
	pause    time.Duration // before the backend is asked for the rest
	answered bool
}

// relayEvents passes on an event stream, event by event, and tells in the stream
// when it ends without the answer. From here on the call goes on when its client
// leaves (Transports, "Sending Messages to the Server": a disconnection is no
// cancellation), so that the client can come back for the rest.
func (x *exchange) relayEvents(ctx context.Context, resp *http.Response) string {
	c := &relayed{x: x, pause: pollPause, src: &source{
		b: x.b, session: x.session, server: x.server.Config.Name, client: x.client, to: ref(x.backend), owner: x,
	}}
	defer x.b.abandon(x)
	begin := []byte(nil)
	if _, batch := x.w.ResponseWriter.(*member); !batch {
		if !x.stay() {
			return clientGone
		}
		c.stream = x.b.streams.open(x.session, x.id, x.giveUp)
		defer context.AfterFunc(x.r.Context(), c.stream.detach)()
		if rev, ok := mcp.RevisionByOrdinal(x.session.Claims().Revision); ok && rev.PrimesStreams() {
			c.primes, begin = true, c.stream.priming()
		}
	}
	copyHeader(x.w.Header(), resp.Header)
	x.w.Header().Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	c.push(begin)
	outcome := c.read(ctx, resp.Body)
	if c.stream != nil {
		c.stream.end(outcome == clientGone)
	}
	return outcome
}

// read reads the backend's stream to its end.
func (c *relayed) read(ctx context.Context, body io.Reader) string {
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		switch {
		case err == nil:
			c.event(&e)
		case c.answered:
			return "ok"
		case errors.Is(err, io.EOF) && c.last != "" && !c.cancelled():
			// A backend that gave an event id and closed in good order expects
			// somebody to come back for the rest (2025-11-25, Transports,
			// "Sending Messages to the Server").
			return c.comeBack(ctx)
		default:
			return c.end(ctx, err)
		}
		if c.answered && !c.live() {
			return "ok"
		}
	}
}

// event passes on one event.
func (c *relayed) event(e *sse.Event) {
	if e.HasID {
		c.last = e.ID
	}
	raw, pause := stripped(e)
	if pause > 0 {
		c.pause = min(max(pause, minPollPause), maxPollPause)
	}
	answer := c.x.answers(e.Data)
	switch {
	case c.stream == nil:
		raw = e.Raw // a batch reads the data alone
	case c.answered && len(e.Data) == 0:
		c.push(raw)
		return
	case len(e.Data) == 0 && (e.HasID || e.Data != nil) && e.Name == "":
		c.blank(pause)
		return
	case e.Data == nil:
		c.push(raw) // comments, or retry
		return
	}
	if !answer && isResponse(e.Data) {
		return // to another call: this backend has no say in it
	}
	bare := *e
	bare.Raw, bare.ID, bare.HasID = raw, "", false
	if out := c.src.event(&bare); out != nil {
		c.send(out, answer)
	}
}

// blank passes on what an event without a message says. An event with an id and
// no data says where the stream can be taken up, which clients know from ours;
// those of older revisions cannot read one.
func (c *relayed) blank(pause time.Duration) {
	if pause <= 0 {
		return
	}
	retry := append(strconv.AppendInt([]byte("retry: "), pause.Milliseconds(), 10), '\n')
	if c.primes {
		c.send(append(retry, "data:\n\n"...), false)
		return
	}
	c.push(append(retry, '\n'))
}

// send passes on an event that is kept for who takes up the stream. What follows
// the answer is not kept: with the answer the stream is over.
func (c *relayed) send(event []byte, answer bool) {
	if c.stream == nil || c.answered {
		c.answered = c.answered || answer
		c.push(event)
		return
	}
	c.answered = answer
	out, live := c.stream.stamp(event, answer)
	if live && c.x.w.push(out) != nil {
		c.stream.detach()
	}
}

// push writes to the client of the POST, if it is there.
func (c *relayed) push(p []byte) {
	switch {
	case c.stream == nil:
		if c.x.w.push(p) != nil {
			c.x.giveUp()
		}
	case c.stream.live() && c.x.w.push(p) != nil:
		c.stream.detach()
	}
}

func (c *relayed) live() bool      { return c.stream == nil || c.stream.live() }
func (c *relayed) cancelled() bool { return c.stream != nil && c.stream.wasCancelled() }

// comeBack asks the backend for the rest of a stream that it closed before the
// answer, as often as it takes. Clients could do that by themselves, but only
// some of those in use do, none of older revisions, and their ids are ours.
func (c *relayed) comeBack(ctx context.Context) string {
	for failed := 0; ; {
		timer := time.NewTimer(c.pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return c.end(ctx, ctx.Err())
		}
		err := c.src.client.Stream(ctx, c.src.to, c.last, func(e upstream.Event) error {
			failed = 0
			return c.rest(&e)
		})
		switch {
		case c.answered:
			return "ok"
		case err == nil:
			// It closed again, and wants to be asked again.
		case ctx.Err() != nil, errors.Is(err, upstream.ErrNoStream), errors.Is(err, upstream.ErrLost):
			return c.end(ctx, err)
		default:
			if failed++; failed >= pollTries {
				return c.end(ctx, err)
			}
		}
		if c.cancelled() {
			return c.end(ctx, io.EOF)
		}
	}
}

// rest passes on an event of the stream on which the backend sends the rest.
func (c *relayed) rest(e *upstream.Event) error {
	if e.ID != "" {
		c.last = e.ID
	}
	data := []byte(e.Data)
	answer := c.x.answers(data)
	var m jsonrpc.Message
	if len(data) == 0 || !answer && isResponse(data) ||
		jsonrpc.Scan(data, &m) == nil && m.Kind == jsonrpc.Notification && forWatcher(m.Method.Value) {
		return nil
	}
	if out := c.src.message(data); out != nil {
		c.send(messageEvent(out), answer)
	}
	if answer {
		return errAnswered
	}
	return nil
}

// end ends a stream that broke off with the error, as its last event.
func (c *relayed) end(ctx context.Context, cause error) string {
	x := c.x
	if errors.Is(ctx.Err(), context.Canceled) {
		return clientGone
	}
	var e *mcp.Error
	if errors.Is(cause, sse.ErrTooLarge) {
		e = x.broken("sent an event over the size limit")
	} else {
		e = x.cutOff(ctx)
	}
	if x.id != nil {
		c.send(errorEvent(e, x.id), true)
	}
	return string(e.Reason)
}

// stripped returns an event's bytes without its id, and the time that it tells
// clients to wait before they come back, 0 where it tells none.
func stripped(e *sse.Event) (raw []byte, retry time.Duration) {
	raw = bytes.TrimPrefix(e.Raw, []byte("\xef\xbb\xbf"))
	if e.Data != nil {
		raw = bytes.TrimLeft(raw, "\r\n") // the end of the line before
	}
	if !e.HasID && !bytes.Contains(raw, []byte("retry:")) {
		return raw, 0
	}
	out := make([]byte, 0, len(raw))
	for rest := raw; len(rest) > 0; {
		n := lineEnd(rest)
		line := rest[:n]
		rest = rest[n:]
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		switch string(field) {
		case "id":
			continue
		case "retry":
			if ms, err := strconv.ParseUint(string(bytes.TrimPrefix(value, []byte(" "))), 10, 31); err == nil {
				retry = time.Duration(ms) * time.Millisecond //nolint:gosec // of 31 bits
			}
		}
		out = append(out, line...)
	}
	return out, retry
}

// lineEnd returns the length of the first line with its end: LF, CR LF or CR.
func lineEnd(p []byte) int {
	n := bytes.IndexByte(p, '\n') + 1
	if n == 0 {
		n = len(p)
	}
	cr := bytes.IndexByte(p[:n], '\r')
	if cr < 0 || cr+2 == n && p[cr+1] == '\n' {
		return n
	}
	return cr + 1
}
