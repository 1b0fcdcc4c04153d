package main

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	const both = "POST /mcp HTTP/1.1\r\nmcp-SESSION-id:  s1 \r\nContent-Length: 3\r\n\r\nabc" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n3\r\nfgh\r\n0\r\n\r\n" +
		"HTTP/1.1 202 Accepted\r\n\r\n"
	r := bufio.NewReader(strings.NewReader(both))
	var m message
	for _, want := range []struct{ start, session, body string }{
		{"POST /mcp HTTP/1.1", "s1", "abc"},
		{"HTTP/1.1 200 OK", "", "defgh"},
		{"HTTP/1.1 202 Accepted", "", ""},
	} {
		require.NoError(t, m.read(r))
		assert.Equal(t, want.start, string(m.start))
		assert.Equal(t, want.session, string(m.sessionID))
		assert.Equal(t, want.body, string(m.body))
	}
	require.ErrorIs(t, m.read(r), io.EOF)
}

func TestLongChunkedBody(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20<<10)
	r := bufio.NewReader(strings.NewReader("A\r\nTransfer-Encoding: chunked\r\n\r\n50000\r\n" + text + "\r\n0\r\n\r\n"))
	var m message
	require.NoError(t, m.read(r))
	assert.Equal(t, text, string(m.body))
}

func TestBadMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want error
	}{
		"cut off in the first line": {"POST", io.ErrUnexpectedEOF},
		"cut off in the headers":    {"POST /\r\nA: b\r\n", io.ErrUnexpectedEOF},
		"cut off in the body":       {"POST /\r\nContent-Length: 3\r\n\r\nab", io.ErrUnexpectedEOF},
		"cut off in a chunk":        {"POST /\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", io.ErrUnexpectedEOF},
		"cut off after the chunks":  {"POST /\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", io.ErrUnexpectedEOF},
		"trailers":                  {"POST /\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n", errWire},
		"no header":                 {"POST /\r\nnothing\r\n\r\n", errWire},
		"negative length":           {"POST /\r\nContent-Length: -1\r\n\r\n", errWire},
		"too long":                  {"POST /\r\nContent-Length: 16777217\r\n\r\n", errWire},
		"line too long":             {"POST /" + strings.Repeat("a", maxLine) + "\r\n\r\n", errWire},
		"too many headers":          {"POST /\r\n" + strings.Repeat("a: b\r\n", maxHeaders+1) + "\r\n", errWire},
	} {
		t.Run(name, func(t *testing.T) {
			var m message
			require.ErrorIs(t, m.read(bufio.NewReaderSize(strings.NewReader(tc.in), maxLine)), tc.want)
		})
	}
}
