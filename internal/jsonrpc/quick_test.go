package jsonrpc

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sameAsSlow: the quick tokenizer leaves a text to jsontext, or says the same.
func sameAsSlow(t *testing.T, raw []byte) (quickly bool) {
	t.Helper()
	q, s := Message{Raw: raw}, Message{Raw: raw}
	quickErr := scanQuick(raw, &q)
	if errors.Is(quickErr, errSlow) {
		return false
	}
	slowErr := scan(raw, &s)
	require.Equal(t, slowErr, quickErr, "%q", raw)
	if slowErr == nil {
		require.Equal(t, s, q, "%q", raw)
	}
	return true
}

func TestQuickTokenizer(t *testing.T) {
	call := func(args string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1},"arguments":` + args + `}}`
	}
	for text, quickly := range map[string]bool{
		call(`{}`): true, call(` { "a" : [ ] , "b" : [1, -0.5e+10 ,"x\n\u00e9\"é😀", true,false,null,{"c":{}}] } `): true,
		call(`{"a":"` + strings.Repeat("é\\\"12345678", 100) + `"}`): true,
		`{"jsonrpc":"2.0","id":1.5,"method":"x"}`:                    true, // well-formed, but no request
		call(`{"a":1,"a":2}`):                                        false,
		call(`{"\u0061":1}`):                                         false,
		call("{\"a\":\"\xff\"}"):                                     false,
		call(`{"a":"\ud83d\ude00"}`):                                 false,
		call("{\"a\":\"\x1f\"}"):                                     false,
		call(`{"a":01}`):                                             false, call(`{"a":1.}`): false, call(`{"a":.1}`): false, call(`{"a":1e}`): false, call(`{"a":-}`): false,
		call(`{"a":tru}`): false, call(`{"a":"\x"}`): false, call(`{"a":"\u00g0"}`): false,
		call(`{"a":1,}`): false, call(`[1,]`): false, call(`[1 2]`): false, call(`{"a" 1}`): false, call(`{1:2}`): false,
		call(`{}`) + "x": false, call(`{}`)[:90]: false, call(`{}`) + " \n": true,
		call(strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70)): false,
		``: false, `[]`: false, `"`: false,
	} {
		assert.Equal(t, quickly, sameAsSlow(t, []byte(text)), "%.200s", text)
	}
	// Each special byte at each place of those that are looked at together, and
	// beside another one.
	specials := []string{`"`, `\`, "\x1f", "\x00", " ", "\x7f", "\x80", "\xff", "é", `\n`, `\u00e9`, "😀", ""}
	for i := range 150 {
		for _, c := range specials {
			for _, d := range specials {
				sameAsSlow(t, []byte(call(`{"a":"`+strings.Repeat("x", i)+c+d+strings.Repeat("y", 70)+`"}`)))
			}
			quickly := sameAsSlow(t, []byte(call(`{"a":"`+strings.Repeat("x", i)+c+`"}`)))
			switch c {
			case " ", "\x7f", "é", `\n`, `\u00e9`, "😀", "":
				assert.True(t, quickly, "%d bytes and %q", i, c)
			default:
				assert.False(t, quickly, "%d bytes and %q", i, c)
			}
		}
	}
}

func FuzzQuick(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":"é\n","method":"tools/call","params":{"name":"x","arguments":{"a":[1.5e-3,true,null,"\u00e9 12345678 \" "]}}}`))
	f.Add([]byte(`{"a":{"a":{"a":[[[-0]]]}},"b":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) { sameAsSlow(t, raw) })
}
