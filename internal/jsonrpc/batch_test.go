package jsonrpc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBatch(t *testing.T) {
	raw := []byte(" [ {\"a\":\"]\"} ,7,\n\"x\",[1,[2]] ] \n")
	members, err := Batch(raw, 4)
	require.NoError(t, err)
	var got []string
	for _, m := range members {
		got = append(got, string(m.Of(raw)))
	}
	assert.Equal(t, []string{`{"a":"]"}`, `7`, `"x"`, `[1,[2]]`}, got)
}

func TestBatchRefused(t *testing.T) {
	for raw, want := range map[string]struct {
		code int
		says string
	}{
		`[]`:              {codeInvalid, "empty"},
		` [ ] `:           {codeInvalid, "empty"},
		`[1,2,3]`:         {codeInvalid, "at most 2"},
		`{"a":1}`:         {codeInvalid, "array"},
		`[1,`:             {codeParse, ""},
		`[1] x`:           {codeParse, "after"},
		`[1 2]`:           {codeParse, ""},
		`[{"a":1,"a":2}]`: {codeParse, "twice"},
		strings.Repeat("[", 65) + strings.Repeat("]", 65): {codeParse, ""},
	} {
		_, err := Batch([]byte(raw), 2)
		e, ok := errors.AsType[*Error](err)
		if assert.True(t, ok, raw) {
			assert.Equal(t, want.code, e.Code, raw)
			assert.Contains(t, e.Message, want.says, raw)
		}
	}
}

// What encoding/json takes for an array of at most 50 values, and nothing else,
// is a batch, of the same values.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{`[]`, `[1]`, `[{"a":[1,2]}, "x" ]`, `[1,]`, `[`, `{}`, ``, `[1]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		const limit = 50
		members, err := Batch(raw, limit)
		if err != nil {
			return
		}
		var want []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &want))
		require.Len(t, members, len(want))
		require.LessOrEqual(t, len(members), limit)
		for i, m := range members {
			assert.Equal(t, string(want[i]), string(m.Of(raw)))
		}
	})
}

func TestScanRef(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"ty\u0070e":"ref/prompt","name":"p","uri":7},"argument":{"name":"n","value":""}}}`)
	var m Message
	require.NoError(t, Scan(raw, &m))
	assert.Equal(t, "ref/prompt", m.RefType.Value)
	assert.Equal(t, `"p"`, string(m.RefName.Of(raw)))
	assert.False(t, m.RefURI.Present())
	assert.False(t, m.Name.Present(), "the argument's name is not the request's")
	require.NoError(t, Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":"p"}}`), &m))
	assert.False(t, m.RefName.Present())
}
