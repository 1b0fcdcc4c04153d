package jsonrpc

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The two codes of this package (JSON-RPC 2.0, section 5.1).
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// ErrBatch is in the chain of the error that Scan gives for a well-formed array:
// a JSON-RPC batch, which only revision 2025-03-26 of MCP has.
var ErrBatch = errors.New("jsonrpc: batch")

// Error is what is wrong with a text. Message is fit for the sender: it says
// what to change and repeats at most a few bytes of what was sent.
type Error struct {
	// Code is -32700 (parse error) or -32600 (invalid request).
	Code    int
	Message string
	// ID is the id of the faulty request in the scanned bytes, absent where
	// none, no valid one, or more than one could be found.
	ID Span

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the private cause: [ErrBatch] or the tokenizer's error.
func (e *Error) Unwrap() error { return e.cause }

func invalid(message string) *Error {
	return &Error{Code: codeInvalid, Message: "Invalid Request: " + message}
}

func parseError(format string, args ...any) *Error {
	return &Error{Code: codeParse, Message: "Parse error: " + fmt.Sprintf(format, args...)}
}

// maxDetail bounds what the tokenizer's words may add to a message.
const maxDetail = 120

// syntaxError turns the tokenizer's error about raw into ours. The JSON pointer
// in it is left out: it is as long as the sender likes.
func syntaxError(raw []byte, err error) *Error {
	var at int64
	detail := err
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, detail = se.ByteOffset, se.Err
	}
	e := parseError("not valid JSON at byte %d", at)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e = parseError("an object has the same member twice, at byte %d", at)
	case !utf8.Valid(raw):
		e = parseError("the text is not UTF-8")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		e = parseError("the JSON text ends too early, after %d bytes", len(raw))
	case detail != nil:
		text := detail.Error()
		if len(text) > maxDetail {
			text = strings.ToValidUTF8(text[:maxDetail], "") + "..."
		}
		e.Message += ": " + text
	}
	e.cause = err
	return e
}
