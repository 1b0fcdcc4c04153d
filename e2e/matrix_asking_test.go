package e2e

import "testing"

// A server's requests to the client, on the stream of a call and on the GET
// stream: elicitation in both modes, sampling and roots, of both servers.
func TestMatrixAsking(t *testing.T) { runMatrix(t, matrixGateway(t).URL(), askingSteps) }

// askingSteps are made anew for each client.
func askingSteps() []expectation {
	asked := step{"op": "asked"}
	return []expectation{
		{step: step{"op": "listTools"}, texts: []string{
			`"every_trigger-elicitation-request"`, `"every_trigger-url-elicitation"`, `"every_trigger-sampling-request"`, `"every_get-roots-list"`, `"py_think"`,
		}},
		{step: call("py_greet", step{}), texts: []string{"hello Ada"}},
		{step: asked, texts: []string{`"method":"elicitation/create"`, "Who are you?", `"requestedSchema":{`, "!sampling"}},
		{step: call("py_greet", step{}), texts: []string{"hello Ada"}},
		{step: with(call("py_greet", step{}), "elicit", "decline"), texts: []string{"decline"}},
		{step: with(call("py_greet", step{}), "elicit", "cancel"), texts: []string{"cancel"}},
		{step: call("py_visit", step{}), texts: []string{"accept"}},
		{step: step{"op": "waitFor", "method": "notifications/elicitation/complete"}, texts: []string{`"elicitationId":"visit-1"`}},
		{step: call("py_think", step{"about": "life"}), texts: []string{"sampled by the client"}},
		{step: call("py_roots", step{}), texts: []string{"file:///home/ada"}},
		{step: asked, texts: []string{`"mode":"url"`, `"url":"https://page.example/"`, `"method":"sampling/createMessage"`, `"text":"life"`, `"maxTokens":10`, `"method":"roots/list"`}},

		{step: call("every_trigger-elicitation-request", step{}), texts: []string{"User provided", "Name: Ada"}},
		{step: with(call("every_trigger-elicitation-request", step{}), "elicit", "decline"), texts: []string{"User declined"}},
		{step: call("every_trigger-url-elicitation", step{"url": "https://page.example/", "elicitationId": "e1"}), texts: []string{"User completed"}},
		{
			step: call("every_trigger-url-elicitation", step{"url": "https://other.example/", "errorPath": true}), code: -32042,
			texts: []string{`"elicitations":[{`, `"mode":"url"`},
		},
		{step: call("every_trigger-sampling-request", step{"prompt": "life", "maxTokens": 7}), texts: []string{"sampled by the client"}},
		{step: call("every_get-roots-list", step{}), texts: []string{"file:///home/ada"}},
		{step: asked, texts: []string{`"birthdate"`, `"elicitationId":"e1"`, `"maxTokens":7`, `"systemPrompt":"You are a helpful test server."`, `"method":"roots/list"`}},
		{step: call("every_echo", step{"message": "still here"}), texts: []string{"Echo: still here"}},
	}
}
