// Package envoy is what the gateway needs of Envoy: its configuration, static
// (Bootstrap) and dynamic (Routes, clusters, XDS), the binary (Find) and its
// process (Supervise). No request passes through this package.
//
// Flow. The bootstrap holds the listener with its limits and the clusters of
// the gateway's own three servers (ext_proc, broker, xDS). Everything that
// changes while Envoy runs comes over one delta ADS stream: the routes, and for
// each MCP server two clusters, the server itself and a composite of [server,
// broker] through which a failed call is retried at the broker. ext_proc chooses
// a server by a header, so routes do not change when servers do.
//
// What fails inside Envoy reaches the client as a JSON-RPC error (see
// localReplies); what ext_proc does not answer reaches no server.
//
// Concurrency. XDS has one mutex, never held while a callback runs; Routable,
// which is asked for each call, reads an atomic pointer. Supervise owns one
// goroutine per task of the process that it runs and returns when all have
// ended.
package envoy
