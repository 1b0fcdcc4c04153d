package jsonrpc

import "github.com/go-json-experiment/json/jsontext"

// AppendSplice appends raw to dst with the JSON string at the span replaced by
// value, quoted; all other bytes stay the same. An absent span appends raw as it
// is. Bytes of value that are not UTF-8 become U+FFFD. dst must not overlap raw.
func AppendSplice(dst, raw []byte, at Span, value string) []byte {
	if !at.Present() {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:at.Start]...)
	dst = appendQuoted(dst, value)
	return append(dst, raw[at.End:]...)
}

// Splice returns what AppendSplice makes of raw, in raw's own memory where it
// fits, which it does for a name that loses its prefix. raw and spans into it are
// of no use afterwards. Only what stands on one side of the string is moved, the
// shorter one: a large body is not copied.
func Splice(raw []byte, at Span, value string) []byte {
	if !at.Present() {
		return raw
	}
	var buf [128]byte
	quoted := appendQuoted(buf[:0], value)
	shorter := at.End - at.Start - len(quoted)
	switch {
	case shorter < 0:
		out := append(make([]byte, 0, len(raw)-shorter), raw[:at.Start]...)
		out = append(out, quoted...)
		return append(out, raw[at.End:]...)
	case at.Start <= len(raw)-at.End:
		copy(raw[shorter:], raw[:at.Start])
		copy(raw[shorter+at.Start:], quoted)
		return raw[shorter:]
	}
	copy(raw[at.Start:], quoted)
	copy(raw[at.Start+len(quoted):], raw[at.End:])
	return raw[:len(raw)-shorter]
}

func appendQuoted(dst []byte, value string) []byte {
	// The error only reports the replaced bytes: the result is a JSON string.
	dst, _ = jsontext.AppendQuote(dst, value)
	return dst
}
