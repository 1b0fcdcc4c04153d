// Package jsonrpc finds its way in the raw bytes of a JSON-RPC 2.0 message, as
// the Model Context Protocol uses it, without decoding it: [Scan] reports where
// the members stand that the gateway decides by, [AppendSplice] and [Splice] replace one
// string, [Fields] and [Elements] walk one level of an object or an array. What
// is not replaced stays the same bytes, so that large integers, unknown fields,
// key order and escapes survive the gateway.
//
// Flow: a body comes in, Scan checks all of it once (grammar, UTF-8, duplicate
// names, depth, and the shape of a message) and fills a [Message] with half-open
// spans into it; whoever forwards it splices another name or URI at such a span.
//
// What is refused, with the codes of JSON-RPC 2.0, section 5.1: text that is not
// I-JSON (RFC 7493: UTF-8 only, no unpaired surrogates, no duplicate names),
// levels beyond [MaxDepth] and trailing bytes are a parse error; a well-formed
// text that is no MCP message (schema.ts of revision 2025-11-25: JSONRPCRequest,
// JSONRPCNotification, JSONRPCResponse) is an invalid request. Names of members
// are case-sensitive, unlike in encoding/json, and escapes in them are
// understood.
//
// Concurrency: the functions share nothing but a pool of decoders and may be
// called from any goroutine; a Message belongs to one goroutine at a time.
//
// The tokenizer is jsontext of go-json-experiment. For long texts one of our own
// comes first, because long strings are most of them (quick.go): it decides
// nothing, but leaves whatever it does not accept to jsontext, and a fuzz test
// holds the two against each other. Measured with BenchmarkScan, jsontext alone,
// on 2 cores of an AMD EPYC, Go 1.26:
//
//	tools/call, 64 bytes of text         0.85 us  1 allocation (the name)
//	tools/call, 64 KiB of text             39 us  1 allocation
//	tools/call, 64 KiB of small records   183 us  1 allocation
//	tools/call, 64 KiB, 1349 members      425 us  1350 allocations: jsontext
//	    holds the names of an object with that many members in a map
package jsonrpc
