package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nested returns a well-formed request with levels levels in all.
func nested(levels int) string {
	n := levels - 3 // the message, params, arguments
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":` +
		strings.Repeat("[", n) + strings.Repeat("]", n) + `}}}`
}

// badInputs is every kind of text that is refused: also the seeds of FuzzScan.
var badInputs = []struct {
	name, raw string
	code      int
	id        string // raw id in the error
	message   string // part of it
}{
	{"empty", ``, -32700, ``, "empty"},
	{"white space", " \r\n\t", -32700, ``, "empty"},
	{"not JSON", `hello`, -32700, ``, "byte 0"},
	{"byte order mark", "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, -32700, ``, "byte 0"},
	{"cut off", `{"jsonrpc":"2.0","id":1,"method":"pi`, -32700, `1`, "ends too early"},
	{"cut off in the id", `{"jsonrpc":"2.0","id":1`, -32700, ``, "ends too early"},
	{"cut off before the id", `{"jsonrpc":"2.0","id":`, -32700, ``, "ends too early"},
	{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"ping",}`, -32700, `1`, "byte"},
	{"trailing bytes", `{"jsonrpc":"2.0","id":1,"method":"ping"}x`, -32700, `1`, "after the JSON value"},
	{"two messages", `{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, -32700, `1`, "after the JSON value"},
	{"trailing NUL", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\x00", -32700, `1`, "after the JSON value"},
	{"duplicate method", `{"jsonrpc":"2.0","method":"ping","method":"tools/call","id":7}`, -32700, `7`, "twice"},
	{"duplicate id", `{"jsonrpc":"2.0","method":"ping","id":7,"id":8}`, -32700, ``, "twice"},
	{"duplicate name", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"a","name":"b"}}`, -32700, `"a"`, "twice"},
	{"duplicate through an escape", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","na\u006de":"b"}}`, -32700, `2`, "twice"},
	{"duplicate params through an escape", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{},"p\u0061rams":{}}`, -32700, `2`, "twice"},
	{"duplicate deep inside", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":{"a":[{"b":1,"b":2}]}}}`, -32700, `2`, "twice"},
	{"too deep", nested(MaxDepth + 1), -32700, `1`, "64 levels"},
	{"far too deep", strings.Repeat("[", 1<<12), -32700, ``, "64 levels"},
	{"too deep in objects", strings.Repeat(`{"a":`, 1<<10), -32700, ``, "64 levels"},
	{"invalid UTF-8", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + "a\xff" + `"}}`, -32700, `1`, "UTF-8"},
	{"overlong UTF-8", `{"jsonrpc":"2.0","method":"` + "\xc0\xaf" + `","id":1}`, -32700, `1`, "UTF-8"},
	{"invalid UTF-8 in the id", `{"jsonrpc":"2.0","method":"ping","id":"` + "\xff" + `"}`, -32700, ``, "UTF-8"},
	{"unpaired surrogate", `{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, -32700, `1`, "byte"},
	{"control character", `{"jsonrpc":"2.0","id":1,"method":"a` + "\n" + `b"}`, -32700, `1`, "byte"},
	{"number with a leading zero", `{"jsonrpc":"2.0","id":01,"method":"ping"}`, -32700, ``, "byte"},
	{"batch", ` [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600, ``, "batch"},
	{"empty batch", `[]`, -32600, ``, "batch"},
	{"broken batch", `[{"jsonrpc":"2.0"]`, -32700, ``, "byte"},
	{"batch and more", `[] []`, -32700, ``, "after the JSON value"},
	{"string", `"ping"`, -32600, ``, "object"},
	{"null", `null`, -32600, ``, "object"},
	{"number and more", `1 2`, -32700, ``, "after the JSON value"},
	{"empty object", `{}`, -32600, ``, "2.0"},
	{"no jsonrpc", `{"id":1,"method":"ping"}`, -32600, `1`, "2.0"},
	{"jsonrpc 1.0", `{"jsonrpc":"1.0","method":"ping","id":1}`, -32600, `1`, "2.0"},
	{"jsonrpc a number", `{"jsonrpc":2.0,"method":"ping","id":1}`, -32600, `1`, "2.0"},
	{"member names differ in case", `{"JSONRPC":"2.0","METHOD":"ping","ID":1}`, -32600, ``, "2.0"},
	{"method differs in case", `{"jsonrpc":"2.0","Method":"ping","id":1}`, -32600, `1`, "method"},
	{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, ``, "integer"},
	{"id fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600, ``, "integer"},
	{"id exponent", `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, -32600, ``, "integer"},
	{"id Exponent", `{"jsonrpc":"2.0","id":1E3,"method":"ping"}`, -32600, ``, "integer"},
	{"id bool", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, -32600, ``, "integer"},
	{"id object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, ``, "integer"},
	{"id too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", MaxID) + `","method":"ping"}`, -32600, ``, "longer"},
	{"method a number", `{"jsonrpc":"2.0","method":1,"id":5}`, -32600, `5`, "method"},
	{"method too long", `{"jsonrpc":"2.0","method":"` + strings.Repeat("x", MaxMethod+1) + `","id":5}`, -32600, `5`, "longer"},
	{"params an array", `{"jsonrpc":"2.0","method":"tools/call","params":["a"],"id":5}`, -32600, `5`, "params"},
	{"params null", `{"jsonrpc":"2.0","method":"tools/call","params":null,"id":5}`, -32600, `5`, "params"},
	{"params a string", `{"jsonrpc":"2.0","method":"tools/call","params":"{}","id":5}`, -32600, `5`, "params"},
	{"neither", `{"jsonrpc":"2.0","id":5}`, -32600, `5`, "method"},
	{"result and error", `{"jsonrpc":"2.0","id":5,"result":{},"error":{}}`, -32600, `5`, "both"},
	{"method and result", `{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}`, -32600, `5`, "either"},
	{"result without id", `{"jsonrpc":"2.0","result":{}}`, -32600, ``, `"id"`},
	{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{}}`, -32600, ``, "integer"},
}

func TestScanRefuses(t *testing.T) {
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			raw := []byte(c.raw)
			var m Message
			err := Scan(raw, &m)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.code, e.Code, e.Message)
			assert.Contains(t, e.Message, c.message)
			assert.Equal(t, c.id, string(e.ID.Of(raw)))
			assert.Less(t, len(e.Message), 300)
			assert.Equal(t, c.raw, string(raw), "the input must not be written to")
		})
	}
}

func TestScanTellsBatches(t *testing.T) {
	var m Message
	require.ErrorIs(t, Scan([]byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), &m), ErrBatch)
	require.NotErrorIs(t, Scan([]byte(`[{]`), &m), ErrBatch)
	require.NotErrorIs(t, Scan([]byte(`{"jsonrpc":"2.0"}`), &m), ErrBatch)
}

func TestScanFindsEverything(t *testing.T) {
	raw := []byte(` { "jsonrpc" : "2.0" , "id" : "a\"1" , "method" : "tools\/call" ,
		"params" : { "na\u006de" : "caf\u00e9" , "uri":"x:/é", "arguments" : {"name":"inner","n":9007199254740993},
		"_meta" : { "x":{"progressToken":1}, "progressToken" : "p" } , "requestId" : -12 } } `)
	var m Message
	require.NoError(t, Scan(raw, &m))
	assert.Equal(t, Request, m.Kind)
	assert.Equal(t, `"a\"1"`, string(m.ID.Of(raw)))
	assert.Equal(t, "tools/call", m.Method.Value)
	assert.Equal(t, `"tools\/call"`, string(m.Method.Of(raw)))
	assert.Equal(t, "café", m.Name.Value)
	assert.Equal(t, `"caf\u00e9"`, string(m.Name.Of(raw)))
	assert.Equal(t, "x:/é", m.URI.Value)
	assert.Equal(t, `{ "x":{"progressToken":1}, "progressToken" : "p" }`, string(m.Meta.Of(raw)))
	assert.Equal(t, `"p"`, string(m.ProgressToken.Of(raw)))
	assert.Equal(t, `-12`, string(m.RequestID.Of(raw)))
	assert.True(t, bytes.HasPrefix(m.Params.Of(raw), []byte(`{ "na`)))
	assert.True(t, bytes.HasSuffix(m.Params.Of(raw), []byte(`-12 }`)))
	assert.False(t, m.Result.Present() || m.Error.Present())
}

func TestScanKinds(t *testing.T) {
	for raw, want := range map[string]Kind{
		`{"jsonrpc":"2.0","id":0,"method":"ping"}`:                      Request,
		`{"jsonrpc":"2.0","id":"","method":"ping","params":{}}`:         Request,
		`{"jsonrpc":"2.0","id":-1,"method":""}`:                         Request,
		`{"j\u0073onrpc":"\u0032.0","i\u0064":3,"m\u0065thod":"ping"}`:  Request,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:        Notification,
		`{"jsonrpc":"2.0","id":123456789012345678901234,"result":null}`: Response,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1}}`:                  Response,
	} {
		var m Message
		require.NoError(t, Scan([]byte(raw), &m), raw)
		assert.Equal(t, want, m.Kind, raw)
		assert.Equal(t, want != Notification, m.ID.Present(), raw)
	}
}

// Fields of other types than MCP gives them are the backend's to refuse.
func TestScanLeavesOddTypesOut(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1,"uri":null,"_meta":[],"requestId":{}}}`)
	var m Message
	require.NoError(t, Scan(raw, &m))
	assert.False(t, m.Name.Present() || m.URI.Present() || m.Meta.Present() || m.RequestID.Present())
}

// encoding/json takes "NAME" for "name": whoever forwards the bytes must not.
func TestScanIsCaseSensitive(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"x","params":{"Name":"evil","name":"good","NAME":"evil"},"Params":{"name":"evil"}}`)
	var m Message
	require.NoError(t, Scan(raw, &m))
	assert.Equal(t, "tools/call", m.Method.Value)
	assert.Equal(t, "good", m.Name.Value)
}

func TestScanDepth(t *testing.T) {
	var m Message
	require.NoError(t, Scan([]byte(nested(MaxDepth)), &m))
	// Brackets in strings and beside each other are no levels.
	require.NoError(t, Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"`+
		strings.Repeat(`{[\"`, 100)+`","b":[`+strings.Repeat("[],", 100)+`[]]}}`), &m))
}

func TestScanCursor(t *testing.T) {
	for cursor, want := range map[string]string{`"x"`: `"x"`, `""`: ``, `7`: `7`, `null`: ``} {
		raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":` + cursor + `}}`)
		var m Message
		require.NoError(t, Scan(raw, &m))
		assert.Equal(t, want, string(m.Cursor.Of(raw)))
	}
}

func TestScanResets(t *testing.T) {
	var m Message
	require.NoError(t, Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}`), &m))
	raw := []byte(`{"jsonrpc":"2.0","method":"x"}`)
	require.NoError(t, Scan(raw, &m))
	assert.Equal(t, Message{Raw: raw, Kind: Notification, Method: m.Method}, m)
	assert.Equal(t, "x", m.Method.Value)
}

func TestScanLimitsAreInclusive(t *testing.T) {
	var m Message
	require.NoError(t, Scan([]byte(`{"jsonrpc":"2.0","id":"`+strings.Repeat("x", MaxID-2)+`","method":"`+strings.Repeat("y", MaxMethod)+`"}`), &m))
}
