package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// quickFrom is how long a text must be, in bytes, for the quick tokenizer to pay.
const quickFrom = 2 << 10

// maxQuickNames is how many members an object may have for the quick tokenizer:
// it compares their names each with each.
const maxQuickNames = 32

// errSlow makes Scan read the text again with jsontext: it is not well-formed,
// or has something that the quick tokenizer leaves to it. It has no other
// meaning, so the quick one decides nothing: it only ever accepts.
var errSlow = errors.New("jsonrpc: not for the quick tokenizer")

// quick is a tokenizer for long texts, two to three times as fast as jsontext on
// long strings. It knows no errors but errSlow, and no escapes in names.
type quick struct {
	raw []byte
	pos int
}

// space skips white space and returns the byte behind it, 0 at the end.
func (q *quick) space() byte {
	for ; q.pos < len(q.raw); q.pos++ {
		switch c := q.raw[q.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (q *quick) peek() jsontext.Kind {
	switch q.space() {
	case '{':
		return jsontext.KindBeginObject
	case '[':
		return jsontext.KindBeginArray
	}
	return jsontext.KindInvalid
}

// value skips one value.
func (q *quick) value(depth int) bool {
	if depth > MaxDepth {
		return false
	}
	switch c := q.space(); {
	case c == '"':
		return q.text()
	case c == '{':
		return q.object(func(Span) error {
			if !q.value(depth + 1) {
				return errSlow
			}
			return nil
		}) == nil
	case c == '[':
		return q.array(depth)
	case c == '-' || '0' <= c && c <= '9':
		return q.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(q.raw[q.pos:], []byte(word)) {
			q.pos += len(word)
			return true
		}
	}
	return false
}

// object reads an object; member must read the value.
func (q *quick) object(member func(key Span) error) error {
	var names [maxQuickNames]Span
	n := 0
	q.pos++ // the brace
	if q.space() == '}' {
		q.pos++
		return nil
	}
	for {
		if q.space() != '"' || n == maxQuickNames {
			return errSlow
		}
		key := Span{Start: q.pos}
		if !q.text() {
			return errSlow
		}
		key.End = q.pos
		name := key.Of(q.raw)
		if bytes.IndexByte(name, '\\') >= 0 {
			return errSlow
		}
		for _, other := range names[:n] {
			if bytes.Equal(other.Of(q.raw), name) {
				return errSlow
			}
		}
		names[n] = key
		n++
		if q.space() != ':' {
			return errSlow
		}
		q.pos++
		if err := member(key); err != nil {
			return err
		}
		switch q.space() {
		case ',':
			q.pos++
		case '}':
			q.pos++
			return nil
		default:
			return errSlow
		}
	}
}

func (q *quick) array(depth int) bool {
	q.pos++ // the bracket
	if q.space() == ']' {
		q.pos++
		return true
	}
	for q.value(depth + 1) {
		switch q.space() {
		case ',':
			q.pos++
		case ']':
			q.pos++
			return true
		default:
			return false
		}
	}
	return false
}

// text skips a string (RFC 8259, section 7). Eight bytes at a time, as long as
// none of them needs a look.
func (q *quick) text() bool {
	raw, i := q.raw, q.pos+1
	for {
		for i+8 <= len(raw) {
			n := plain(binary.LittleEndian.Uint64(raw[i:]))
			i += n
			if n < 8 {
				break
			}
		}
		if i >= len(raw) {
			return false
		}
		switch c := raw[i]; {
		case c == '"':
			q.pos = i + 1
			return true
		case c == '\\':
			n := escape(raw[i:])
			if n == 0 {
				return false
			}
			i += n
		case c < ' ':
			return false
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			if r == utf8.RuneError && n == 1 {
				return false
			}
			i += n
		}
	}
}

// plain returns how many of eight bytes, from the lowest on, are ASCII from the
// space on, and neither a quote nor a backslash. Each byte's highest bit collects
// what speaks against it. A borrow can put it into a byte that is plain, but only
// above one that is not.
func plain(x uint64) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	bad := x | (x - ones*' ') | (quote - ones) | (slash - ones)
	return bits.TrailingZeros64(bad&high) / 8
}

// escape returns the length of the escape that b begins with, 0 for none. Halves
// of surrogate pairs are left to jsontext.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		if (b[2] == 'd' || b[2] == 'D') && b[3] >= '8' {
			return 0
		}
		return 6
	}
	return 0
}

// number skips a number (RFC 8259, section 6).
func (q *quick) number() bool {
	if q.raw[q.pos] == '-' {
		q.pos++
	}
	if q.at() == '0' {
		q.pos++
	} else if !q.digits() {
		return false
	}
	if q.at() == '.' {
		q.pos++
		if !q.digits() {
			return false
		}
	}
	if c := q.at(); c == 'e' || c == 'E' {
		q.pos++
		if c := q.at(); c == '+' || c == '-' {
			q.pos++
		}
		return q.digits()
	}
	return true
}

func (q *quick) at() byte {
	if q.pos == len(q.raw) {
		return 0
	}
	return q.raw[q.pos]
}

func (q *quick) digits() bool {
	start := q.pos
	for c := q.at(); '0' <= c && c <= '9'; c = q.at() {
		q.pos++
	}
	return q.pos > start
}
