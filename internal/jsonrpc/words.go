package jsonrpc

// maxWord is the length of the longest word below.
const maxWord = 25

// words holds the known words by their length; the last list stays empty. It is
// never written to.
var words = [maxWord + 2][]string{
	2:  {"id"},
	3:  {"2.0", "ref", "uri"},
	4:  {"name", "ping", "type"},
	5:  {"_meta", "error"},
	6:  {"cursor", "method", "params", "result"},
	7:  {"jsonrpc"},
	9:  {"arguments", "requestId"},
	10: {"tools/call", "tools/list", "initialize"},
	11: {"prompts/get"},
	12: {"prompts/list"},
	13: {"progressToken"},
	14: {"resources/list", "resources/read"},
	22: {"notifications/progress"},
	23: {"notifications/cancelled"},
	25: {"notifications/initialized"},
}
