package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goodInputs are seeds beside badInputs.
var goodInputs = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a_b","arguments":{"x":[1,{"y":null}]},"_meta":{"progressToken":"t"}}}`,
	`{"jsonrpc":"2.0","id":"s","method":"resources/read","params":{"uri":"file:///\u00e9\"\\"}}`,
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12,"reason":"x"}}`,
	`{"jsonrpc":"2.0","id":12345678901234567890,"result":{"a":1.0e+5}}`,
	` {"p\u0061rams":{"na\u006de":"\ud83d\ude00"},"method":"tools/call","jsonrpc":"2.0","id":-0} `,
}

func addSeeds(f *testing.F) {
	for _, c := range badInputs {
		f.Add([]byte(c.raw))
	}
	for _, raw := range goodInputs {
		f.Add([]byte(raw))
	}
}

// FuzzScan compares with two oracles that share no code with Scan: encoding/json
// for the grammar and the values, and a walk over jsontext's tokens for what
// encoding/json lets pass (duplicate names, bad UTF-8) and for the depth.
func FuzzScan(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		var m Message
		err := Scan(raw, &m)
		require.Equal(t, before, raw, "the input was written to")
		var e *Error
		wellFormed := err == nil || errors.As(err, &e) && e.Code == codeInvalid
		require.Equal(t, strictlyValid(raw), wellFormed, "%q: %v", raw, err)
		if wellFormed {
			require.True(t, json.Valid(raw), "%q", raw)
		}
		if err != nil {
			require.NotNil(t, e)
			require.True(t, utf8.ValidString(e.Message))
			if id := e.ID.Of(raw); id != nil {
				require.True(t, json.Valid(id), "%q", id)
			}
			return
		}
		compareMembers(t, raw, &m)
	})
}

// strictlyValid is I-JSON of at most MaxDepth levels, token by token.
func strictlyValid(raw []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for n := 0; ; n++ {
		_, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return n > 0
		case err != nil || d.StackDepth() > MaxDepth:
			return false
		case d.StackDepth() == 0:
			_, err = d.ReadToken()
			return errors.Is(err, io.EOF)
		}
	}
}

// compareMembers decodes raw into maps, whose keys are case-sensitive, and
// compares.
func compareMembers(t *testing.T, raw []byte, m *Message) {
	t.Helper()
	top := decodeMap(raw)
	params := decodeMap(top["params"])
	meta := decodeMap(params["_meta"])
	assertRaw := func(what string, want json.RawMessage, got Span) {
		assert.Equal(t, string(want), string(got.Of(raw)), "%s of %q", what, raw)
	}
	assertText := func(what string, want json.RawMessage, got Text) {
		var s string
		if len(want) == 0 || want[0] != '"' || json.Unmarshal(want, &s) != nil {
			assert.False(t, got.Present(), "%s of %q", what, raw)
			return
		}
		assert.Equal(t, s, got.Value, "%s of %q", what, raw)
		assertRaw(what, want, got.Span)
	}
	assertRaw("id", top["id"], m.ID)
	assertRaw("params", top["params"], m.Params)
	assertRaw("result", top["result"], m.Result)
	assertRaw("error", top["error"], m.Error)
	assertText("method", top["method"], m.Method)
	assertText("name", params["name"], m.Name)
	assertText("uri", params["uri"], m.URI)
	ref := decodeMap(params["ref"])
	assertText("ref.type", ref["type"], m.RefType)
	assertText("ref.name", ref["name"], m.RefName)
	assertText("ref.uri", ref["uri"], m.RefURI)
	if c := string(params["cursor"]); m.Cursor.Present() || c != "" && c != "null" && c != `""` {
		assertRaw("cursor", params["cursor"], m.Cursor)
	}
	if m.Meta.Present() {
		assertRaw("_meta", params["_meta"], m.Meta)
	}
	if m.RequestID.Present() {
		assertRaw("requestId", params["requestId"], m.RequestID)
	}
	if m.ProgressToken.Present() {
		assertRaw("progressToken", meta["progressToken"], m.ProgressToken)
	}
}

func decodeMap(raw []byte) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// FuzzSplice: after a splice the name reads as the new one, and every other
// byte is the same.
func FuzzSplice(f *testing.F) {
	for _, raw := range goodInputs {
		f.Add([]byte(raw), "weather_now")
		f.Add([]byte(raw), "\"\\\x00é\u2028")
	}
	f.Fuzz(func(t *testing.T, raw []byte, value string) {
		var m, after Message
		if Scan(raw, &m) != nil || !utf8.ValidString(value) {
			return
		}
		for _, at := range []Span{m.Name.Span, m.URI.Span} {
			out := AppendSplice(nil, raw, at, value)
			require.Equal(t, string(out), string(Splice(bytes.Clone(raw), at, value)))
			require.NoError(t, Scan(out, &after), "%q", out)
			if !at.Present() {
				require.Equal(t, string(raw), string(out))
				continue
			}
			got := after.Name
			if at == m.URI.Span {
				got = after.URI
			}
			require.Equal(t, value, got.Value)
			require.Equal(t, string(raw[:at.Start]), string(out[:got.Start]))
			require.Equal(t, string(raw[at.End:]), string(out[got.End:]))
		}
	})
}

// FuzzWalk: Fields and Elements agree with encoding/json on what is there.
func FuzzWalk(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		fields := map[string]json.RawMessage{}
		if err := Fields(raw, func(name string, _, v Span) bool { fields[name] = v.Of(raw); return true }); err == nil {
			require.True(t, strictlyValid(raw))
			require.Equal(t, decodeMap(raw), fields)
		}
		var elements, want []json.RawMessage
		if err := Elements(raw, func(v Span) bool { elements = append(elements, v.Of(raw)); return true }); err == nil {
			require.True(t, strictlyValid(raw))
			require.NoError(t, json.Unmarshal(raw, &want))
			require.Len(t, elements, len(want))
			for i := range want {
				require.Equal(t, string(want[i]), string(elements[i]))
			}
		}
	})
}
