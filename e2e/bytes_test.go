package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// oddArguments are arguments that any decoding and encoding would change.
const oddArguments = `{"big":9007199254740993,"bigger":123456789012345678901234567890,"f":1.50,"e":1E+2,"z":1,"a":2,` +
	`"esc":"\u00e9\/\ud83d\ude00 <&>","": null,"nested":{"z":[1.0,{"k":-0}],"a":{}}, "name":"not the tool"}`

const oddResult = `{ "content":[{"type":"text","text":"\u003c\/x","annotations":{"x-unknown":9007199254740993}},{"type":"newtype","z":1}],` +
	`"structuredContent":{"n":12345678901234567890,"f":1.10},"isError":false,"x-more":[1e5],"_meta":{"k":1}}`

// D4, D9, D10, G11, M1: arguments, results, errors and definitions arrive as the
// same bytes, on the broker's way (first call) and the direct one.
func TestBytesAreKept(t *testing.T) {
	definition := `{"title":"T","name":"od\u0064","inputSchema":{"type":"object","properties":{"z":{"default":9007199254740993},"a":{"const":1.50}}},` +
		`"execution":{"taskSupport":"optional"},"annotations":{"readOnlyHint":false},"x-unknown":["\u00e9\/"],"description":"d"}`
	for _, sse := range []bool{false, true} {
		fake := mcptest.New(t, func(s *mcptest.Server) {
			s.SSE = sse
			s.Tools = []string{mcptest.Page(definition), mcptest.Page(mcptest.Tool("fails"), mcptest.Tool("iserror"))}
		})
		fake.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
			switch r.Tool() {
			case "fails":
				fake.Fail(w, r, -32050, "it's \"broken\" \u2713")
			case "iserror":
				fake.Reply(w, r, `{"content":[],"isError":true}`)
			default:
				fake.Reply(w, r, oddResult)
			}
		})
		g := up(t, entry("s", fake))
		c := g.client()
		list := string(c.Call("tools/list", `{}`).Result())
		listed := strings.Replace(definition, `"od\u0064"`, `"s_odd"`, 1)
		assert.Contains(t, list, strings.TrimSuffix(listed, "}")+`,"_meta":{"patchbay.dev/server":"s"}}`)

		for _, way := range []string{"broker", "direct"} {
			fake.ResetRequests()
			before := g.calls(way)
			body := `{ "params" : {"arguments":` + oddArguments + `, "na\u006de":"s_o\u0064d","_meta":{"progressToken":9007199254740993}},` +
				` "method":"tools/call","x":1.0, "id":"a\u0062/9007199254740993","jsonrpc":"2.0" }`
			a := c.Post(body)
			require.Equal(t, http.StatusOK, a.Status, a.String())
			require.InDelta(t, before+1, g.calls(way), 0, "it went the %s way", way)
			got := fake.Method("tools/call")
			require.Len(t, got, 1)
			assert.Equal(t, strings.Replace(body, `"s_o\u0064d"`, `"odd"`, 1), string(got[0].Body), way)
			assert.Equal(t, oddResult, string(a.Result()), way)
			assert.Equal(t, `"a\u0062/9007199254740993"`, string(a.ID()), way)

			e := c.CallTool("s_fails", `{}`)
			assert.Equal(t, http.StatusOK, e.Status)
			assert.Equal(t, -32050, e.Code())
			assert.Equal(t, "it's \"broken\" \u2713", e.ErrorMessage())
			assert.JSONEq(t, `{"content":[],"isError":true}`, string(c.CallTool("s_iserror", `{}`).Result()))
		}
	}
}

// Large arguments and results pass, up to the body limit.
func TestLargeBodies(t *testing.T) {
	fake := mcptest.New(t, nil)
	g := up(t, entry("s", fake))
	c := g.client()
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 4<<20 - 1000} {
		args := `{"x":"` + strings.Repeat("x", size) + `"}`
		a := c.CallTool("s_echo", args)
		require.Equal(t, http.StatusOK, a.Status, size)
		assert.Contains(t, string(a.Body), `"structuredContent":`+args, size)
	}
	assert.InDelta(t, 3, g.calls("direct"), 0)
}
