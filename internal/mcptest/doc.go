// Package mcptest holds what the project's tests talk to and with: a real MCP
// server on a loopback port whose every answer a test can choose ([Server]),
// and a client that sends and receives bytes exactly as the test says
// ([Client]). Neither decodes and encodes again, so tests can compare bytes.
//
// Flow: [New] listens, answers the session era of MCP with sensible defaults,
// and records every request before it is handled. A test changes one thing (a
// handler, a list, the session behaviour), drives the code under test, and
// looks at the record.
//
// Concurrency: all methods are safe for concurrent use. The exported fields of
// Server are set in New's configure function and only read afterwards; what
// changes later has a method. Helpers never call FailNow, so they may be used
// from any goroutine; only functions that say so must run in the test's own.
//
// Only tests import this package.
package mcptest
