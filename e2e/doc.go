// Package e2e tests the gateway as its users run it: the built command, the real
// Envoy, real MCP servers and clients over TCP. Nothing of the product is linked
// into the tests, so a process can be killed and started again.
//
// It has no code of its own but tests. Each test that names an id of the
// requirements in a comment is its proof.
package e2e
