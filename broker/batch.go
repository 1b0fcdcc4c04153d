package broker

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/sse"
	"patchbay.dev/router"
)

const (
	// batchWorkers is how many messages of one batch are served at once.
	batchWorkers = 8
	// maxBatchHeld bounds, in bytes, what is held of the answers to one batch.
	maxBatchHeld = 16 << 20
)

var errBatchHeld = errors.New("the answers to the batch are over the limit")

// batch serves the messages of a batch as if each had come by itself, and
// answers as 2025-03-26 says (Transports, "Sending Messages to the Server"):
// with nothing but 202 when no message was a request; with an array; or, as soon
// as one answer is an event stream, with one stream for all.
func (b *Broker) batch(w *response, r *http.Request, d *router.Decision, body []byte) {
	all := &batchAnswer{w: w, held: make([][]byte, len(d.Batch))}
	var grp errgroup.Group
	grp.SetLimit(batchWorkers)
	for i, span := range d.Batch {
		m := &member{all: all, index: i, header: http.Header{}}
		grp.Go(func() error {
			b.member(m, r, span.Of(body))
			return nil
		})
	}
	_ = grp.Wait() // members give no errors
	all.finish()
}

// member serves one message.
func (b *Broker) member(m *member, r *http.Request, msg []byte) {
	var scanned jsonrpc.Message
	err := jsonrpc.Scan(msg, &scanned)
	m.id, m.request = scanned.ID.Of(msg), scanned.Kind == jsonrpc.Request
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		m.fail(errMember("a batch within a batch is none"))
		return
	case err == nil && scanned.Method.Value == mcp.MethodInitialize:
		m.fail(errMember("initialize must not be part of a batch"))
		return
	}
	defer b.containMember(m)
	one := r.WithContext(r.Context())
	one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(msg)), int64(len(msg))
	b.post(b.response(m), one)
	m.end()
}

func errMember(what string) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeInvalidRequest, Message: "Invalid Request: " + what}
}

// containMember ends a panic with its own message.
func (b *Broker) containMember(m *member) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint,err113 // net/http's sentinel for "cut the response off"
		b.Metrics.Panic()
		b.Log.Error("panic in a message of a batch", "panic", p, "stack", string(debug.Stack()))
	}
	m.fail(errInternal())
}

// batchAnswer is the answer to a batch.
type batchAnswer struct {
	mu        sync.Mutex
	w         *response // guarded by mu
	held      [][]byte  // guarded by mu; by message, the answers that are no events yet
	size      int       // guarded by mu; of what the members hold
	streaming bool      // guarded by mu
	failed    error     // guarded by mu; what writing to the client came to
}

// stream begins the event stream, with what is there already.
func (a *batchAnswer) stream() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streaming {
		return a.failed
	}
	a.streaming = true
	h := a.w.Header()
	h.Set("Content-Type", mcp.MediaEvents)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	a.w.WriteHeader(http.StatusOK)
	var events []byte
	for _, msg := range a.held {
		if msg != nil {
			events = appendEvent(events, msg)
		}
	}
	a.held = nil
	a.failed = a.w.push(events)
	return a.failed
}

// add takes in an answer that is whole.
func (a *batchAnswer) add(index int, msg []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.streaming:
		a.held[index] = msg
	case a.failed == nil:
		a.failed = a.w.push(appendEvent(nil, msg))
	}
	return a.failed
}

// reserve counts n more bytes that a member holds.
func (a *batchAnswer) reserve(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.size += n
	return a.size <= maxBatchHeld
}

// finish writes the array, if there is no stream. All members have ended.
func (a *batchAnswer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streaming {
		return
	}
	var out []byte
	for _, msg := range a.held {
		if msg != nil {
			out = append(append(out, ','), msg...)
		}
	}
	if out == nil {
		a.w.WriteHeader(http.StatusAccepted)
		return
	}
	out[0] = '['
	writeJSON(a.w, http.StatusOK, append(out, ']'))
}

// member is the answer to one message, as the http.ResponseWriter of the code
// that serves single messages. It belongs to one goroutine.
type member struct {
	all     *batchAnswer
	index   int
	id      []byte // raw; nil when there is none
	request bool   // an answer is due
	header  http.Header
	buf     []byte
}

// Header implements http.ResponseWriter.
func (m *member) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter. The status of a batch is its own.
func (m *member) WriteHeader(int) {}

// Write implements io.Writer.
func (m *member) Write(p []byte) (int, error) {
	if !m.all.reserve(len(p)) {
		return 0, errBatchHeld
	}
	m.buf = append(m.buf, p...)
	return len(p), nil
}

// FlushError is found by http.ResponseController. Events go on at once, because
// a server may ask the client something in them; without their ids, which would
// be those of another stream.
func (m *member) FlushError() error {
	if !m.isStream() {
		return nil
	}
	if err := m.all.stream(); err != nil {
		return err
	}
	events := sse.NewReader(bytes.NewReader(m.buf), maxEvent)
	for {
		e, err := events.Next()
		if err != nil { // the relay flushes behind whole events only
			break
		}
		if len(e.Data) == 0 {
			continue
		}
		if err := m.all.add(m.index, e.Data); err != nil {
			return err
		}
	}
	m.all.reserve(-len(m.buf))
	m.buf = m.buf[:0]
	return nil
}

func (m *member) isStream() bool {
	typ, _, err := mime.ParseMediaType(m.header.Get("Content-Type"))
	return err == nil && typ == mcp.MediaEvents
}

// end takes in what the message came to.
func (m *member) end() {
	if m.isStream() {
		_ = m.FlushError() // the client is gone when this fails
		return
	}
	answer := bytes.TrimSpace(m.buf)
	var scanned jsonrpc.Message
	switch {
	case len(answer) == 0 && !m.request: // a notification, or a response of the client's
		return
	case m.request && m.id != nil && (jsonrpc.Scan(answer, &scanned) != nil || scanned.Kind != jsonrpc.Response):
		m.fail(&mcp.Error{Code: mcp.CodeInternal, Message: "the server gave no JSON-RPC answer, or one too large for a batch"})
	default: // without an id it is an error of the gateway's own
		_ = m.all.add(m.index, answer) // as above
	}
}

// fail makes the answer an error.
func (m *member) fail(e *mcp.Error) {
	_ = m.all.add(m.index, e.Body(m.id)) // as above
}

// appendEvent appends a message as an event. Line breaks in it, which JSON has
// between its tokens only, become those of the data field.
func appendEvent(dst, msg []byte) []byte {
	dst = append(dst, "event: message\n"...)
	for line := range bytes.SplitAfterSeq(msg, []byte{'\n'}) {
		dst = append(append(dst, "data: "...), bytes.ReplaceAll(bytes.TrimRight(line, "\r\n"), []byte{'\r'}, []byte{' '})...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}
