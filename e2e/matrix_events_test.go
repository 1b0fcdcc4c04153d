package e2e

import "testing"

// M10, M13: completion, logging and subscriptions of both servers. A client
// hears of a resource under the URI that it subscribed to.
func TestMatrixEvents(t *testing.T) { runMatrix(t, matrixGateway(t).URL(), eventSteps) }

// eventSteps are made anew for each client.
func eventSteps() []expectation {
	const (
		user    = "py+file:///users/ada"
		dynamic = "every+demo://resource/dynamic/text/1"
		message = "notifications/message"
		updated = "notifications/resources/updated"
	)
	complete := func(kind, key, ref, argument, value string) step {
		return step{"op": "complete", "ref": step{"type": kind, key: ref}, "argument": step{"name": argument, "value": value}}
	}
	return []expectation{
		{step: step{"op": "connect"}, texts: []string{`"completions":{}`, `"logging":{}`, `"subscribe":true`}},
		{step: complete("ref/prompt", "name", "every_completable-prompt", "department", "S"), texts: []string{`"values":["Sales","Support"]`}},
		{
			step:  with(complete("ref/prompt", "name", "every_completable-prompt", "name", ""), "context", step{"department": "Sales"}),
			texts: []string{`"values":["David","Eve","Frank"]`},
		},
		{step: complete("ref/prompt", "name", "py_review", "language", "go"), texts: []string{`"values":["go","gopher"]`}},
		{step: complete("ref/resource", "uri", "py+file:///users/{name}", "name", "al"), texts: []string{`"values":["alan"]`}},
		{step: complete("ref/resource", "uri", "every+demo://resource/dynamic/text/{resourceId}", "resourceId", "3"), texts: []string{`"values":["3"]`}},
		{step: complete("ref/prompt", "name", "review", "language", ""), code: -32602, texts: []string{"review"}},

		{step: step{"op": "setLevel", "level": "debug"}},
		{step: call("py_work", step{"steps": 1}), texts: []string{"1 steps"}},
		{step: step{"op": "waitFor", "method": message, "match": "of work"}, texts: []string{`"level":"debug"`, "debug of work"}},
		{step: step{"op": "waitFor", "method": message, "match": "of work"}, texts: []string{`"level":"warning"`}},

		{step: step{"op": "subscribe", "uri": user}},
		{step: call("py_touch", step{"uri": "file:///users/ada"}), texts: []string{"told 1"}},
		{step: step{"op": "waitFor", "method": updated}, texts: []string{`"uri":"` + user + `"`}},
		{step: step{"op": "unsubscribe", "uri": user}},
		{step: call("py_touch", step{"uri": "file:///users/ada"}), texts: []string{"told 0"}},
		{step: step{"op": "subscribe", "uri": "file:///readme.txt"}},
		{step: call("py_touch", step{"uri": "file:///readme.txt"}), texts: []string{"told 1"}},
		{step: step{"op": "waitFor", "method": updated}, texts: []string{`"uri":"file:///readme.txt"`}},
		{step: step{"op": "subscribe", "uri": dynamic}},
		{step: step{"op": "unsubscribe", "uri": dynamic}},
		{step: step{"op": "subscribe", "uri": "no+such:///thing"}, code: -32002, texts: []string{"no+such:///thing"}},
	}
}
