// Package extproc is the gRPC adapter between Envoy's external processor and the
// router: one gRPC stream carries one POSTed request.
//
// Envoy sends the request's headers and its body, in chunks
// (FULL_DUPLEX_STREAMED). The server answers nothing until it has the whole body,
// because the decision needs it; then it sends, in order, the answer to the
// headers (with the mutation) and the body, or instead of both an immediate
// response. The response phase is skipped, so the stream ends there and a
// response of any length is untouched by what happens to this process.
//
// It fails closed. Envoy lets a request pass unmodified when a stream ends with
// OK too early, whatever failure_mode_allow says, so every abort is a non-OK
// status; and the route that a request has until a decision was made leads to
// the broker, never to a backend.
//
// Bounds: Envoy's message_timeout does not apply in this mode. A body is bounded
// by the body limit and by Envoy's request_timeout, all bodies together by
// [Server].BufferLimit; a decision does no I/O.
//
// Concurrency: one goroutine per stream, nothing shared but the router and
// atomic counters.
package extproc
