package jsonrpc

import (
	"fmt"
	"strings"
	"testing"
)

// callOf returns a tools/call whose arguments have about n bytes: one text, one
// with many escapes, many small records, or one object with many members (the costliest shape: its names
// are held against each other).
func callOf(shape string, n int) []byte {
	var b strings.Builder
	switch shape {
	case "text":
		fmt.Fprintf(&b, `"text":"%s"`, strings.Repeat("x", n))
	case "escapes":
		b.WriteString(`"text":"`)
		for i := 0; b.Len() < n; i++ {
			b.WriteString([]string{`the record was changed by \"owner\" yesterday.\n`, `of the Zürich collection `}[i*i%7%2])
		}
		b.WriteByte('"')
	case "records":
		b.WriteString(`"rows":[{}`)
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, `,{"id":%d,"title":"The quick brown fox %d","done":false,"tags":["red","green"]}`, i, i)
		}
		b.WriteByte(']')
	case "members":
		b.WriteString(`"a":1`)
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, `,"key%d":{"a":%d,"b":["x",true],"c":"value %d"}`, i, i, i)
		}
	}
	return []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"clock_now","arguments":{` +
		b.String() + `},"_meta":{"progressToken":1}}}`)
}

func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		shape string
		n     int
	}{{"text", 64}, {"text", 64 << 10}, {"escapes", 64 << 10}, {"records", 64}, {"records", 64 << 10}, {"members", 64 << 10}} {
		raw := callOf(c.shape, c.n)
		b.Run(fmt.Sprintf("%s/%d", c.shape, c.n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			var m Message
			for b.Loop() {
				if err := Scan(raw, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSplice(b *testing.B) {
	raw := callOf("text", 64)
	var m Message
	if err := Scan(raw, &m); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendSplice(dst[:0], raw, m.Name.Span, "now")
	}
}
