package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cases of the ways, as the fixture gets them from the gateway.
func TestWayCases(t *testing.T) {
	addr := startFixture(t, 2)
	for _, k := range wayCases() {
		t.Run(k.title, func(t *testing.T) {
			c := connect(t, addr)
			require.NoError(t, c.openAs(`{"elicitation":{}}`))
			for _, w := range ways() {
				call := k.on(&w)
				require.Contains(t, string(call.body), `"name":"`+w.server+`_echo`)
				call.body = []byte(strings.Replace(string(call.body), w.server+"_", "", 1))
				want, err := c.learn(&call, false)
				require.NoError(t, err)
				assert.Equal(t, k.events, strings.HasPrefix(string(c.response.body), "event: message\n"))
				l, err := generate([]*client{c}, &call, &want, false, 20*time.Millisecond)
				require.NoError(t, err)
				assert.Positive(t, l.requests)
			}
		})
	}
}

func TestMessageOfEvents(t *testing.T) {
	k := benchCase{events: true}
	for text, want := range map[string]string{
		"id: 1\ndata: \n\nevent: message\nid: 2\ndata: {\"id\":1}\n\n": `{"id":1}`,
		"data: {\"id\":1}": `{"id":1}`,
		"data: \n\n":       "",
		"":                 "",
	} {
		assert.Equal(t, want, string(k.message([]byte(text))), "%q", text)
	}
}

func TestReportOfWays(t *testing.T) {
	cases := wayCases()
	r := &report{ways: []*samples{{c: &cases[0], windows: map[string][]sample{
		"direct": windows(100, 110), "can be asked": windows(131, 140), "broker": windows(190, 200),
	}}}}
	var b strings.Builder
	require.NoError(t, r.write(&b))
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"| ways, answer in JSON | direct | 100.0 | 50.0 | 50.0 | 1.00 (1.00-1.00) | | |",
		"| can be asked | 131.0 | 65.5 | 65.5 | 1.31 (1.27-1.31) | 1.30 | FAIL |",
		"| broker | 190.0 | 95.0 | 95.0 | 1.90 (1.82-1.90) | 2 | pass |",
	} {
		assert.Contains(t, text, want)
	}
}
