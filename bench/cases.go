package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

// userAgent is what the load generator calls itself.
const userAgent = "patchbay-bench/1"

// benchCase is one kind of request.
type benchCase struct {
	key   string // of the null server's answer
	title string
	body  []byte // with the placeholder of the id in it
	tools int    // how many tools a list must hold; 0 is a call
	// events: the answer comes as an event stream.
	events bool
	// limit is the most CPU per request in units of the null server's; 0 is
	// none.
	limit float64
}

// limitWithLog is the limit of a call that Envoy reports on.
const limitWithLog = 1.35

// placeholder stands where each request has its id, which is as long. Ids count
// up from it.
const placeholder = 100_000_000

// toolName is the fixture's first tool; the gateway puts the server's name
// before it. The second one answers the same in an event stream.
const (
	toolName       = "echo"
	eventsToolName = "echo_events"
)

func callCase(argument int) benchCase {
	size := fmt.Sprintf("%d B", argument)
	if argument >= 1<<10 {
		size = fmt.Sprintf("%d KiB", argument>>10)
	}
	return benchCase{
		key: "call", title: "tools/call, " + size, limit: 1.15,
		body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s_%s","arguments":%s}}`,
			placeholder, serverName, toolName, argumentsOf(argument)),
	}
}

// argumentsOf makes an object of n bytes that looks like text with quotes and
// line breaks in it, the same one each time.
func argumentsOf(n int) string {
	const open, end = `{"text":"`, `"}`
	words := []string{"the ", "record ", "of ", "collection ", "was ", "changed ", "by ", `\"owner\" `, `yesterday.\n`, "Zürich "}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same text each time is wanted
	var b strings.Builder
	b.WriteString(open)
	for b.Len() < n-len(end)-16 {
		b.WriteString(words[random.IntN(len(words))])
	}
	b.WriteString(strings.Repeat("x", max(0, n-len(end)-b.Len())))
	return b.String() + end
}

func listCase(tools int, limit float64) benchCase {
	return benchCase{
		key: "list", title: fmt.Sprintf("tools/list, %d tools", tools), tools: tools, limit: limit,
		body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}`, placeholder),
	}
}

// expected is the right answer to a case: before and after the id. It is made
// of a first answer that was looked at closely, so that the others can be
// compared byte by byte.
type expected struct{ before, after []byte }

var errAnswer = errors.New("wrong answer")

// message returns the JSON text of an answer: all of it, or what the last event
// carries. The gateway may give events ids, which differ each time.
func (c *benchCase) message(answer []byte) []byte {
	const field = "data: "
	if !c.events {
		return answer
	}
	at := bytes.LastIndex(answer, []byte(field+"{"))
	if at < 0 {
		return nil
	}
	line, _, _ := bytes.Cut(answer[at+len(field):], []byte("\n"))
	return line
}

// learn checks the answer to the request with the given id by its meaning.
func (c *benchCase) learn(answer []byte, id int64) (expected, error) {
	answer = c.message(answer)
	var a struct {
		ID     int64
		Result struct {
			Tools   []json.RawMessage
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return expected{}, fmt.Errorf("%w: %w: %.200s", errAnswer, err, answer)
	}
	text := fmt.Sprintf("%08x", checksum(c.body))
	switch {
	case a.ID != id:
		return expected{}, fmt.Errorf("%w: id %d instead of %d: %.200s", errAnswer, a.ID, id, answer)
	case c.tools > 0 && len(a.Result.Tools) != c.tools:
		return expected{}, fmt.Errorf("%w: %d tools instead of %d: %.200s", errAnswer, len(a.Result.Tools), c.tools, answer)
	case c.tools == 0 && (len(a.Result.Content) != 1 || a.Result.Content[0].Text != text):
		return expected{}, fmt.Errorf("%w: not the checksum %s of the arguments: %.200s", errAnswer, text, answer)
	}
	// A copy: the answer's memory takes the next answer.
	before, after, ok := bytes.Cut(bytes.Clone(answer), fmt.Append(nil, id))
	if !ok {
		return expected{}, fmt.Errorf("%w: the id is written otherwise: %.200s", errAnswer, answer)
	}
	return expected{before, after}, nil
}

// check compares an answer byte by byte.
func (e *expected) check(answer, id []byte) error {
	if len(answer) == len(e.before)+len(id)+len(e.after) &&
		bytes.HasPrefix(answer, e.before) && bytes.HasPrefix(answer[len(e.before):], id) && bytes.HasSuffix(answer, e.after) {
		return nil
	}
	return fmt.Errorf("%w to request %s: %.200s", errAnswer, id, answer)
}

// limitOf is the limit for a shape; 0 is none.
func (c *benchCase) limitOf(shape string) float64 {
	switch {
	case shape == patchbayShape:
		return c.limit
	case shape == patchbayLogShape && c.tools == 0:
		return limitWithLog
	}
	return 0
}
