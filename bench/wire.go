package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
)

// Limits on one message. The longest is a list of 1,000 tools.
const (
	maxLine    = 16 << 10
	maxHeaders = 100
	maxBody    = 16 << 20
)

var errWire = errors.New("not an HTTP/1.1 message that this program knows")

// message is one HTTP/1.1 message with what matters here. net/http would cost
// more than what is measured, on both ends. It is read into again and again.
type message struct {
	start     []byte // the first line
	sessionID []byte
	body      []byte
	length    int // of the body; -1 is chunked
}

// read takes in one message. io.EOF means that the connection ended before it.
func (m *message) read(r *bufio.Reader) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	m.start = append(m.start[:0], line...)
	m.sessionID, m.length = m.sessionID[:0], 0
	for range maxHeaders {
		if line, err = readLine(r); err != nil {
			return unexpected(err)
		}
		if len(line) == 0 {
			return unexpected(m.readBody(r))
		}
		if err := m.header(line); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: over %d headers", errWire, maxHeaders)
}

func (m *message) header(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return fmt.Errorf("%w: header %.40q", errWire, line)
	}
	value = bytes.TrimSpace(value)
	switch {
	case isName(name, "content-length"):
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 0 || n > maxBody {
			return fmt.Errorf("%w: content-length %.40q", errWire, value)
		}
		m.length = n
	case isName(name, "transfer-encoding"):
		m.length = -1
	case isName(name, "mcp-session-id"):
		m.sessionID = append(m.sessionID, value...)
	}
	return nil
}

// isName compares lengths first: most headers are told apart by that.
func isName(name []byte, lower string) bool {
	return len(name) == len(lower) && bytes.EqualFold(name, []byte(lower))
}

func (m *message) readBody(r *bufio.Reader) error {
	if m.length >= 0 {
		m.body = resize(m.body, m.length)
		_, err := io.ReadFull(r, m.body)
		return err //nolint:wrapcheck // of the connection
	}
	m.body = m.body[:0]
	chunks := httputil.NewChunkedReader(r)
	for {
		if len(m.body) == cap(m.body) {
			m.body = resize(m.body, len(m.body)+64<<10)[:len(m.body)]
		}
		n, err := chunks.Read(m.body[len(m.body):cap(m.body)])
		m.body = m.body[:len(m.body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return endOfChunks(r)
		case err != nil:
			return err //nolint:wrapcheck // of the connection
		case len(m.body) > maxBody:
			return fmt.Errorf("%w: body over %d bytes", errWire, maxBody)
		}
	}
}

// endOfChunks reads what follows the last chunk: no trailers, an empty line.
func endOfChunks(r *bufio.Reader) error {
	line, err := readLine(r)
	if err == nil && len(line) > 0 {
		err = fmt.Errorf("%w: trailers", errWire)
	}
	return err
}

// resize returns b with length n and its old content.
func resize(b []byte, n int) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	return append(make([]byte, 0, n), b...)[:n]
}

// readLine returns a line without its end, valid until the next read. io.EOF
// means that there was none.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine:
		return nil, fmt.Errorf("%w: line over %d bytes", errWire, maxLine)
	case err != nil:
		return nil, err //nolint:wrapcheck // of the connection
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
