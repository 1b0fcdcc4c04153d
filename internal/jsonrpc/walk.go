package jsonrpc

import (
	"bytes"
	"errors"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder is a tokenizer over one text in memory, with offsets.
type decoder struct {
	raw  []byte
	dec  jsontext.Decoder
	q    quick // used instead of dec when fast
	fast bool
	buf  bytes.Buffer // hands raw to dec, which reads a bytes.Buffer in place and never writes to it
}

// decoders saves the tokenizer's stacks from one text to the next; it holds no
// text. A pool is a cache, not state: nothing depends on what is in it.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

func newDecoder(raw []byte, opts ...jsontext.Options) *decoder {
	d := decoders.Get().(*decoder)
	d.raw, d.fast = raw, false
	d.buf = *bytes.NewBuffer(raw)
	d.dec.Reset(&d.buf, opts...)
	return d
}

// free gives the decoder back. No text may be referred to from the pool.
func (d *decoder) free() {
	d.raw, d.q = nil, quick{}
	d.buf = bytes.Buffer{}
	d.dec.Reset(&d.buf)
	decoders.Put(d)
}

// newQuick is newDecoder with the quick tokenizer.
func newQuick(raw []byte) *decoder {
	d := decoders.Get().(*decoder)
	d.raw, d.q, d.fast = raw, quick{raw: raw}, true
	return d
}

// peek returns the kind of what comes next. The quick tokenizer knows objects
// and arrays only; everything else is KindInvalid there.
func (d *decoder) peek() jsontext.Kind {
	if d.fast {
		return d.q.peek()
	}
	return d.dec.PeekKind()
}

// value reads one whole value, or one member name where a name is due.
func (d *decoder) value() (Span, error) {
	if d.fast {
		d.q.space()
		start := d.q.pos
		if !d.q.value(1) {
			return Span{}, errSlow
		}
		return Span{start, d.q.pos}, nil
	}
	v, err := d.dec.ReadValue()
	if err != nil {
		return Span{}, syntaxError(d.raw, err)
	}
	end := int(d.dec.InputOffset())
	return Span{end - len(v), end}, nil
}

// token reads one token, an opening or closing bracket, and returns the offset
// behind it.
func (d *decoder) token() (int, error) {
	if _, err := d.dec.ReadToken(); err != nil {
		return 0, syntaxError(d.raw, err)
	}
	return int(d.dec.InputOffset()), nil
}

// object reads the object that comes next and calls member for each name; member
// must read the value. It returns the span of the object.
func (d *decoder) object(member func(key Span) error) (Span, error) {
	if d.fast {
		d.q.space()
		start := d.q.pos
		err := d.q.object(member)
		return Span{start, d.q.pos}, err
	}
	end, err := d.token()
	if err != nil {
		return Span{}, err
	}
	start := end - 1
	for d.dec.PeekKind() != jsontext.KindEndObject {
		key, err := d.value()
		if err != nil {
			return Span{}, err
		}
		if err := member(key); err != nil {
			return Span{}, err
		}
	}
	end, err = d.token()
	return Span{start, end}, err
}

// end fails when anything but white space is left.
func (d *decoder) end() error {
	if d.fast {
		if d.q.space(); d.q.pos < len(d.raw) {
			return errSlow
		}
		return nil
	}
	at := int(d.dec.InputOffset())
	for i, c := range d.raw[at:] {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return parseError("there are bytes after the JSON value, at byte %d", at+i)
		}
	}
	return nil
}

// unquote decodes the JSON string at s, which was checked before.
func unquote(raw []byte, s Span) string {
	quoted := s.Of(raw)
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return intern(inner)
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		// The text was checked; only the lenient search for an id gets here,
		// and compares with names that cannot have the replaced bytes.
		return string(text)
	}
	return intern(text)
}

// tooDeep tells whether brackets stand in each other deeper than MaxDepth. It
// is exact for well-formed text; for other text it may say either.
func tooDeep(raw []byte) bool {
	// Few texts have that many brackets at all, and counting is cheap.
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) <= MaxDepth {
		return false
	}
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
		case '{', '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd returns the offset of the quote that ends the string whose first
// quote is at i, or len(raw).
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(raw)
}

// open starts to read raw, which must be a text of kind, as far as Fields and
// Elements have it in common.
func open(raw []byte, kind jsontext.Kind, what string) (*decoder, error) {
	if tooDeep(raw) {
		return nil, errTooDeep()
	}
	d := newDecoder(raw)
	if got := d.dec.PeekKind(); got != kind && got != jsontext.KindInvalid {
		d.free()
		return nil, invalid("not a JSON " + what)
	}
	return d, nil
}

func errTooDeep() *Error {
	return parseError("objects and arrays may be nested %d levels deep", MaxDepth)
}

// Fields calls yield for each member of the one JSON object that raw holds, in
// order, with the decoded name and the spans of name (quotes included) and value
// in raw. When yield returns false it stops there and returns nil; else all of
// raw was checked as [Scan] does it. The error is an [*Error]. yield may call
// Fields and Elements itself.
func Fields(raw []byte, yield func(name string, key, value Span) bool) error {
	d, err := open(raw, jsontext.KindBeginObject, "object")
	if err != nil {
		return err
	}
	defer d.free()
	_, err = d.object(func(key Span) error {
		value, err := d.value()
		if err == nil && !yield(unquote(raw, key), key, value) {
			return errStop
		}
		return err
	})
	return d.finish(err)
}

// Elements calls yield for each element of the one JSON array that raw holds, in
// order, with its span in raw. It stops and fails as [Fields] does.
func Elements(raw []byte, yield func(value Span) bool) error {
	d, err := open(raw, jsontext.KindBeginArray, "array")
	if err != nil {
		return err
	}
	defer d.free()
	if _, err := d.token(); err != nil {
		return err
	}
	for d.dec.PeekKind() != jsontext.KindEndArray {
		value, err := d.value()
		if err != nil {
			return err
		}
		if !yield(value) {
			return nil
		}
	}
	_, err = d.token()
	return d.finish(err)
}

// finish ends a walk that ended with err.
func (d *decoder) finish(err error) error {
	switch {
	case err == nil:
		return d.end()
	case errors.Is(err, errStop):
		return nil
	}
	return err
}
