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
	// The error only reports the replaced bytes: the result is a JSON string.
	dst, _ = jsontext.AppendQuote(dst, value)
	return append(dst, raw[at.End:]...)
}
