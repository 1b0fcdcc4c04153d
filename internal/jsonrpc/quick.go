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

// longText is from where on, in bytes, a string is read in blocks.
const longText = 32

// text skips a string (RFC 8259, section 7).
func (q *quick) text() bool {
	i, ok := eights(q.raw, q.pos+1, q.pos+1+longText)
	if ok && i < len(q.raw) && q.raw[i] != '"' {
		if i, ok = blocks(q.raw, i); ok {
			i, ok = eights(q.raw, i, len(q.raw))
		}
	}
	q.pos = i + 1
	return ok && i < len(q.raw)
}

// eights goes over a string, eight bytes at a time as long as none of them needs a
// look, and stops at its quote or at end.
func eights(raw []byte, i, end int) (int, bool) {
	for i < min(end, len(raw)) {
		if i+8 <= len(raw) {
			n := plain(binary.LittleEndian.Uint64(raw[i:]))
			if i += n; n == 8 {
				continue
			}
		}
		if raw[i] == '"' {
			return i, true
		}
		n := special(raw, i)
		if n == 0 {
			return i, false
		}
		i += n
	}
	return i, true
}

// blocks is eights for 64 bytes at a time, until fewer are left. Where escapes are
// many it is twice as fast: it goes from one to the next without a branch that
// the processor cannot foresee.
func blocks(raw []byte, i int) (int, bool) {
	for i+64 <= len(raw) {
		at, todo := 0, specials(raw[i:i+64])
		for todo != 0 {
			at = bits.TrailingZeros64(todo)
			switch c := raw[i+at]; {
			case c == '\\' && i+at+1 < len(raw) && escapes[raw[i+at+1]]: // most
				at += 2
			case c == '"':
				return i + at, true
			default:
				n := special(raw, i+at)
				if n == 0 {
					return i + at, false
				}
				at += n
			}
			todo &= ^uint64(0) << at // none are left when the last one leads out of the block
		}
		i += max(64, at)
	}
	return i, true
}

const ones, high = 0x0101010101010101, 0x8080808080808080

// plain returns how many of eight bytes, from the lowest on, are ASCII from the
// space on, and neither a quote nor a backslash. Each byte's highest bit collects
// what speaks against it. A borrow can put it into a byte that is plain, but only
// above one that is not.
func plain(x uint64) int {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	bad := x | (x - ones*' ') | (quote - ones) | (slash - ones)
	return bits.TrailingZeros64(bad&high) / 8
}

// specials returns a bit for each of 64 bytes that is not plain.
func specials(b []byte) uint64 {
	b = b[:64:64]
	return special8(b) | special8(b[8:])<<8 | special8(b[16:])<<16 | special8(b[24:])<<24 |
		special8(b[32:])<<32 | special8(b[40:])<<40 | special8(b[48:])<<48 | special8(b[56:])<<56
}

// special8 is specials for eight bytes. Here every byte counts, so sums are made
// of the lower seven bits alone: none carries.
func special8(b []byte) uint64 {
	x := binary.LittleEndian.Uint64(b)
	low := x &^ high
	good := (low + ones*(0x80-' ')) & (low ^ ones*'"' + (high - ones)) & (low ^ ones*'\\' + (high - ones)) &^ x
	// The multiplication gathers the bytes' highest bits.
	return (^good & high >> 7) * 0x0102040810204080 >> 56
}

// special returns the length of the character that begins at raw[i], which is not
// a quote; 0 when it is none.
func special(raw []byte, i int) int {
	switch c := raw[i]; {
	case c == '\\':
		if i+1 < len(raw) && escapes[raw[i+1]] {
			return 2
		}
		return unicodeEscape(raw[i:])
	case c < ' ':
		return 0
	case c < utf8.RuneSelf:
		return 1
	case 0xc2 <= c && c < 0xe0 && i+1 < len(raw) && raw[i+1]&0xc0 == 0x80: // most
		return 2
	}
	r, n := utf8.DecodeRune(raw[i:])
	if r == utf8.RuneError && n == 1 {
		return 0
	}
	return n
}

// escapes has the bytes that follow a backslash in escapes of two bytes.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// unicodeEscape returns the length of the escape of that kind that b begins with,
// 0 for none. Halves of surrogate pairs are left to jsontext.
func unicodeEscape(b []byte) int {
	if len(b) < 6 || b[1] != 'u' {
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
