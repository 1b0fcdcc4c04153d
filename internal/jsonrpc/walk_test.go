package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFields(t *testing.T) {
	raw := []byte(` {"name":"a", "inputSchema" : {"type":"object","n":9007199254740993} ,"\u0078":[1, 2],"":null} `)
	var got []string
	require.NoError(t, Fields(raw, func(name string, key, value Span) bool {
		got = append(got, name, string(key.Of(raw)), string(value.Of(raw)))
		return true
	}))
	assert.Equal(t, []string{
		"name", `"name"`, `"a"`,
		"inputSchema", `"inputSchema"`, `{"type":"object","n":9007199254740993}`,
		"x", `"\u0078"`, `[1, 2]`,
		"", `""`, `null`,
	}, got)
}

func TestElements(t *testing.T) {
	raw := []byte(`[ {"a":[]} ,1.50,"x", [] ]`)
	var got []string
	require.NoError(t, Elements(raw, func(value Span) bool {
		got = append(got, string(value.Of(raw)))
		return true
	}))
	assert.Equal(t, []string{`{"a":[]}`, `1.50`, `"x"`, `[]`}, got)
}

func TestWalksStop(t *testing.T) {
	n := 0
	require.NoError(t, Fields([]byte(`{"a":1,"b":2,`), func(string, Span, Span) bool { n++; return n < 2 }))
	assert.Equal(t, 2, n)
	n = 0
	require.NoError(t, Elements([]byte(`[1,2,`), func(Span) bool { n++; return n < 2 }))
	assert.Equal(t, 2, n)
}

func TestWalksNest(t *testing.T) {
	raw := []byte(`{"tools":[{"name":"a"},{"name":"b"}]}`)
	var names []string
	require.NoError(t, Fields(raw, func(_ string, _, tools Span) bool {
		list := tools.Of(raw)
		assert.NoError(t, Elements(list, func(tool Span) bool {
			one := tool.Of(list)
			assert.NoError(t, Fields(one, func(_ string, _, v Span) bool {
				names = append(names, string(v.Of(one)))
				return true
			}))
			return true
		}))
		return true
	}))
	assert.Equal(t, []string{`"a"`, `"b"`}, names)
}

func TestWalksRefuse(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for raw, code := range map[string]int{
		``: -32700, `{"a":1,"a":2}`: -32700, `{"a":1,"\u0061":2}`: -32700, `{"a":1} x`: -32700,
		`{"a"}`: -32700, `{"a":1`: -32700, `{"a":[1}`: -32700, `{"a":` + deep + `}`: -32700,
		`[]`: -32600, `"a"`: -32600, `null`: -32600,
	} {
		var e *Error
		require.ErrorAs(t, Fields([]byte(raw), func(string, Span, Span) bool { return true }), &e, raw)
		assert.Equal(t, code, e.Code, raw)
	}
	for raw, code := range map[string]int{
		``: -32700, `[{"a":1,"a":2}]`: -32700, `[] x`: -32700, `[1,]`: -32700, `[1`: -32700, deep: -32700,
		`{}`: -32600, `1`: -32600,
	} {
		var e *Error
		require.ErrorAs(t, Elements([]byte(raw), func(Span) bool { return true }), &e, raw)
		assert.Equal(t, code, e.Code, raw)
	}
}

func TestSplice(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":1e400},"name":"a_\u0062","z":1}}`)
	var m Message
	require.NoError(t, Scan(raw, &m))
	assert.Equal(t,
		`>{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":1e400},"name":"q\"é\u0001","z":1}}`,
		string(AppendSplice([]byte(">"), raw, m.Name.Span, "q\"é\x01")))
	assert.Equal(t, string(raw), string(AppendSplice(nil, raw, Span{}, "x")), "absent: nothing to replace")
	assert.Equal(t, `"`+"\ufffd"+`"`, string(AppendSplice(nil, []byte(`""`), Span{0, 2}, "\xff")))
}

// In place: names that are shorter, equal and longer, with the large part before
// and behind them.
func TestSpliceInPlace(t *testing.T) {
	large := `"arguments":{"text":"` + strings.Repeat("x", 1000) + `"}`
	for _, params := range []string{`"name":"clock_now",` + large, large + `,"name":"clock_now"`, `"name":"clock_now"`, `"arguments":{}`} {
		raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `}}`)
		var m Message
		require.NoError(t, Scan(raw, &m))
		for _, value := range []string{"now", "", "clock_new", "the_clock_now", "q\"é\x01", strings.Repeat("long", 100)} {
			want := AppendSplice(nil, raw, m.Name.Span, value)
			mine := bytes.Clone(raw)
			got := Splice(mine, m.Name.Span, value)
			require.Equal(t, string(want), string(got))
			inPlace := cap(got) > 0 && &mine[:cap(mine)][cap(mine)-1] == &got[:cap(got)][cap(got)-1]
			assert.Equal(t, len(got) <= len(raw), inPlace, "%.60s: %q", params, value)
		}
	}
}
