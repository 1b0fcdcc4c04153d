// Package router decides what becomes of one POSTed JSON-RPC message: an answer
// from memory, the direct way to a backend's cluster, or the broker.
//
// Decisions are pure: the body, a few headers, the caller's View and what is in
// memory of its session go in, a [Decision] comes out. There is no I/O, no gRPC
// and no clock here, so ext_proc and the broker decide alike; the broker trusts
// nothing that ext_proc decided and decides again.
//
// A Router may be used concurrently.
package router
