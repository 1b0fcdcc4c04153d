package e2e

import "testing"

// A client hears what its level lets through, also of a server that knows no
// levels and sends everything.
func TestMatrixLevels(t *testing.T) {
	const message = "notifications/message"
	runMatrix(t, matrixGateway(t).URL(), func() []expectation {
		return []expectation{
			{step: step{"op": "setLevel", "level": "error"}},
			{step: call("py_work", step{"steps": 1}), texts: []string{"1 steps"}},
			{step: step{"op": "arrived", "method": message}, texts: []string{"!of work"}},
			{step: step{"op": "setLevel", "level": "warning"}},
			{step: call("py_work", step{"steps": 1}), texts: []string{"1 steps"}},
			{step: step{"op": "waitFor", "method": message, "match": "of work"}, texts: []string{`"level":"warning"`, "warning of work"}},
			{step: step{"op": "setLevel", "level": "debug"}},
			{step: call("py_work", step{"steps": 1}), texts: []string{"1 steps"}},
			{step: step{"op": "waitFor", "method": message, "match": "of work"}, texts: []string{`"level":"debug"`, "debug of work"}},
			{step: step{"op": "waitFor", "method": message, "match": "of work"}, texts: []string{`"level":"warning"`}},
		}
	})
}

// A client that declares nothing is asked nothing, and hears so at once.
func TestMatrixNothingToAsk(t *testing.T) {
	g := matrixGateway(t)
	for _, c := range sdkClients {
		t.Run(c.name, func(t *testing.T) {
			run := func(t *testing.T, url string, steps ...step) []stepResult {
				t.Helper()
				return runSteps(t, c.env, c.argv, url, steps...)
			}
			expect(t, run, g.URL(), []expectation{
				{step: call("py_add", step{"a": 2, "b": 3}), texts: []string{`"result":5`}},
				{step: call("py_greet", step{}), texts: []string{`"isError":true`}},
				{step: call("py_think", step{"about": "life"}), texts: []string{`"isError":true`}},
				{step: call("py_roots", step{}), texts: []string{`"isError":true`}},
				{step: call("every_echo", step{"message": "hi"}), texts: []string{"Echo: hi"}},
				{step: step{"op": "ping"}},
			})
		})
	}
}
