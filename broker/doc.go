// Package broker is the HTTP adapter: it serves what no immediate answer and no
// direct way can. It opens and ends sessions, holds the clients' GET streams,
// opens backend sessions, carries calls by its own way, and recovers the direct
// calls that Envoy retries here. Alone, without Envoy and ext_proc, it is a
// correct gateway: each POST is decided again, by the same router, and nothing
// that a header says of an earlier decision is trusted.
//
// A request walks through [Broker.ServeHTTP] to one of post (decide, then reply,
// initialize, notify or forward), stream (GET), end (DELETE) or recover (a
// direct call that met a dead session or no connection; known by a sealed
// header that only the gateway can make).
//
// A call's event stream (relayed, callStream) has ids of the gateway's own, and
// is kept as it goes by, within bounds. When its client is cut off in the middle
// the call goes on, and a GET with Last-Event-ID gets what was missed, then the
// rest, until the answer (2025-11-25, Transports, "Resumability and
// Redelivery"). What ends such a call: the answer, the server's timeout,
// Options.DetachTime without a client, notifications/cancelled, the session's end,
// or the broker's. An answer that is not kept any more is told as an error for the
// call's id, which is part of the event ids.
//
// A backend that closes its stream before the answer, for the client to poll,
// is polled by the broker itself: clients of older revisions do not come back,
// of the others only some do, and holding the stream open is right for all.
//
// Concurrency: one goroutine per request; that of a call outlives its client's
// connection. A GET stream has a bounded queue; who
// does not read is dropped and counted, and never holds up anybody else.
package broker
