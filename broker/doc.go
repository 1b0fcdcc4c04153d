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
// Concurrency: one goroutine per request. A GET stream has a bounded queue; who
// does not read is dropped and counted, and never holds up anybody else.
package broker
