package e2e

import "testing"

func call(name string, args step) step { return step{"op": "callTool", "name": name, "args": args} }

func with(s step, key string, value any) step {
	s[key] = value
	return s
}

// D1, M10, M11: all that clients do with lists, calls, prompts and resources of
// the official reference server and of one made with Python, both behind one
// endpoint.
func TestMatrixBasics(t *testing.T) {
	g := matrixGateway(t)
	runMatrix(t, g.URL(), func() []expectation {
		return []expectation{
			{step: step{"op": "connect"}, texts: []string{`"name":"patchbay"`, `"tools":{"listChanged":true}`, `"prompts":{"listChanged":true}`}},
			{step: step{"op": "ping"}},
			{step: step{"op": "listTools"}, texts: []string{`"every_echo"`, `"every_get-structured-content"`, `"py_add"`, `"py_greet"`, `"patchbay.dev/server":"py"`}},
			{step: call("every_echo", step{"message": "hi"}), texts: []string{"Echo: hi"}},
			{step: call("every_echo", step{"message": "hi"}), texts: []string{"Echo: hi"}},
			{step: call("every_get-structured-content", step{"location": "New York"}), texts: []string{`"structuredContent":{`}},
			{step: call("every_get-tiny-image", step{}), texts: []string{`"type":"image"`, `"mimeType":"image/png"`}},
			{step: call("every_get-annotated-message", step{"messageType": "error", "includeImage": false}), texts: []string{`"priority":1`}},
			{step: with(call("every_trigger-long-running-operation", step{"duration": 0.2, "steps": 4}), "progress", true), texts: []string{"completed", `"progress":1`, `"progress":4`, `"total":4`}},
			{step: call("py_add", step{"a": 2, "b": 3}), texts: []string{`"structuredContent":{"result":5}`}},
			{step: call("py_fail", step{}), texts: []string{`"isError":true`, "it fails"}},
			{step: with(call("py_work", step{"steps": 3}), "progress", true), texts: []string{"3 steps", `"message":"step 1"`, `"message":"step 3"`}},
			{step: call("every_add", step{}), code: -32602, texts: []string{"Tool not found: every_add"}},

			{step: step{"op": "listPrompts"}, texts: []string{`"every_simple-prompt"`, `"every_resource-prompt"`, `"py_review"`}},
			{step: step{"op": "getPrompt", "name": "every_args-prompt", "args": step{"city": "Oslo"}}, texts: []string{"What's weather in Oslo?"}},
			{step: step{"op": "getPrompt", "name": "py_review", "args": step{"language": "Go"}}, texts: []string{"Review this Go code."}},
			{step: step{"op": "getPrompt", "name": "review", "args": step{}}, code: -32602, texts: []string{"Prompt not found: review"}},

			{step: step{"op": "listResources"}, texts: []string{`"every+demo://resource/static/document/features.md"`, `"py+file:///readme.txt"`}},
			{step: step{"op": "listResourceTemplates"}, texts: []string{`"every+demo://resource/dynamic/text/{resourceId}"`, `"py+file:///users/{name}"`}},
			{step: step{"op": "readResource", "uri": "every+demo://resource/dynamic/text/7"}, texts: []string{"Resource 7"}},
			{step: step{"op": "readResource", "uri": "py+file:///readme.txt"}, texts: []string{"read me"}},
			{step: step{"op": "readResource", "uri": "py+file:///users/ada"}, texts: []string{"user ada"}},
			{step: call("every_get-resource-links", step{"count": 2}), texts: []string{`"type":"resource_link"`}},
			{step: step{"op": "readResource", "uri": "demo://resource/dynamic/text/2"}, texts: []string{"Resource 2"}},
			{step: step{"op": "readResource", "uri": "file:///readme.txt"}, texts: []string{"read me"}},
			{step: step{"op": "readResource", "uri": "no+such:///thing"}, code: -32002, texts: []string{"no+such:///thing"}},
		}
	})
}
