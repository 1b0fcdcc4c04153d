// Package sse reads server-sent events without losing their bytes: a relay hands
// on what came, byte for byte, and looks at the data beside it.
//
// A Reader belongs to one goroutine.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is returned for an event over the limit.
var ErrTooLarge = errors.New("server-sent event over the size limit")

// Event is one event, or a block of comments alone. Its bytes are valid until
// the next call of Next.
type Event struct {
	// Raw are the bytes of the event with the empty line that ends it.
	Raw []byte
	// Name is the event field, empty for "message"; ID the id field.
	Name, ID string
	// HasID tells an empty id from none: it resets the client's last event id.
	HasID bool
	// Data is the data field, its lines joined by \n; nil when there is none.
	Data []byte
}

// Reader reads events from a stream (HTML Living Standard, "Server-sent
// events", parsing: lines end with LF, CR LF or CR).
type Reader struct {
	r       *bufio.Reader
	limit   int
	raw     []byte
	data    []byte
	first   bool
	afterCR bool // the last line ended with a CR; its LF may follow
	crlf    bool // the stream has used CR LF
}

// NewReader returns a Reader whose events have at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 4<<10), limit: limit, first: true}
}

// Next returns the next event. At the end of the stream it returns io.EOF; an
// event that the end cuts off is returned in full with io.ErrUnexpectedEOF,
// which by the standard is to be thrown away.
func (r *Reader) Next() (Event, error) {
	var e Event
	r.raw, r.data = r.raw[:0], r.data[:0]
	hasData := false
	for {
		line, err := r.line()
		if err != nil {
			if errors.Is(err, io.EOF) && len(bytes.Trim(r.raw, "\n")) > 0 {
				err = io.ErrUnexpectedEOF
			}
			e.Raw = r.raw
			return e, err
		}
		if r.first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			r.first = false
		}
		if len(line) == 0 {
			e.Raw = r.raw
			if hasData {
				e.Data = r.data[:len(r.data)-1]
			}
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			hasData = true
			r.data = append(append(r.data, value...), '\n')
		case "event":
			e.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, e.HasID = string(value), true
			}
		}
	}
}

// line appends one line to r.raw and returns it without its end.
func (r *Reader) line() ([]byte, error) {
	start := len(r.raw)
	for {
		buf, err := r.buffered()
		if err != nil {
			return nil, err
		}
		if r.afterCR {
			r.afterCR = false
			if buf[0] == '\n' {
				r.crlf = true
				if err := r.take(1); err != nil {
					return nil, err
				}
				start = len(r.raw)
				continue
			}
		}
		n := bytes.IndexAny(buf, "\r\n")
		if n < 0 {
			if err := r.take(len(buf)); err != nil {
				return nil, err
			}
			continue
		}
		cr := buf[n] == '\r'
		if err := r.take(n + 1); err != nil {
			return nil, err
		}
		end := len(r.raw) - 1
		if cr {
			if err := r.feed(); err != nil {
				return nil, err
			}
		}
		return r.raw[start:end], nil
	}
}

// feed takes the LF of a CR LF. Where it has not arrived, waiting for it could
// hold back a whole event of a stream that ends its lines with CR alone; so the
// Reader waits only in a stream that has used CR LF before, and else takes the
// LF when it comes.
func (r *Reader) feed() error {
	if r.r.Buffered() == 0 && !r.crlf {
		r.afterCR = true
		return nil
	}
	next, err := r.r.Peek(1)
	if err != nil || next[0] != '\n' {
		return nil // the line is complete; the next read tells
	}
	r.crlf = true
	return r.take(1)
}

// buffered waits for bytes and returns what has arrived.
func (r *Reader) buffered() ([]byte, error) {
	if _, err := r.r.Peek(1); err != nil {
		return nil, err // io.EOF is the contract
	}
	buf, err := r.r.Peek(r.r.Buffered())
	if err != nil {
		return nil, fmt.Errorf("buffered bytes: %w", err)
	}
	return buf, nil
}

// take moves n buffered bytes to r.raw.
func (r *Reader) take(n int) error {
	if len(r.raw)+n > r.limit {
		return fmt.Errorf("%w of %d bytes", ErrTooLarge, r.limit)
	}
	b, err := r.r.Peek(n)
	if err != nil {
		return fmt.Errorf("buffered bytes: %w", err)
	}
	r.raw = append(r.raw, b...)
	if _, err := r.r.Discard(n); err != nil {
		return fmt.Errorf("buffered bytes: %w", err)
	}
	return nil
}
