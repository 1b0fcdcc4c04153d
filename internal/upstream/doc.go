// Package upstream talks to the MCP servers behind the gateway: one [Client]
// per server for requests, one watcher per server that holds its catalog
// current, and a [Manager] that keeps both in step with the configuration.
//
// Flow: Manager.Apply gives every configured server a watcher. The watcher
// opens a session of its own, learns what the server does with sessions that it
// does not know, opens the GET stream, reads all lists and reports them; then it
// fetches what the stream says has changed, or polls where a server cannot say,
// and pings. When the server is lost it reports why and reconnects with jittered
// backoff. Calls of the gateway's clients do not pass the watcher: whoever makes
// them takes the Client and a session of its own.
//
// Bytes: a request's body goes out as it is given and exactly once; the raw
// JSON of results, tools and notifications is never encoded again.
//
// Concurrency: Client and Manager are safe for concurrent use. A watcher is one
// goroutine that owns all of its state, and one more per open GET stream that
// only sends it events.
//
// The transport is the streamable HTTP of revisions 2025-03-26 to 2025-11-25
// (Transports, "Streamable HTTP").
package upstream
