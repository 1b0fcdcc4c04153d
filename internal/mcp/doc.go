// Package mcp holds what the gateway knows about the Model Context Protocol
// itself: its revisions (one file each, behind the [Revision] interface), its
// methods, error codes, header names and the few rules about HTTP status.
//
// It does no I/O and keeps no state. Nobody outside this package compares
// version strings: ask the Revision.
package mcp
