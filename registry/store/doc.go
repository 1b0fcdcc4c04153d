// Package store keeps the last catalog of each server on disk, so that after a
// restart of the gateway the names of a server that is still down are taken, and
// a call to it is "unavailable" and not "Tool not found".
//
// Flow: at the start, before any watcher, [Store.Restore] gives the registry what
// was kept. [Store.Run] then writes a server's file a moment after its catalog
// changed, and removes those of servers that are gone. Nothing on a request's way
// waits for the disk: the registry's subscriber only leaves a token.
//
// A file is one JSON object (see [file]), replaced atomically, mode 0600. It is a
// cache: one that is damaged, of another version, or of a server that has moved
// is reported once, ignored, and replaced when the server is connected. It holds
// no URL and no header, which may be secrets, only a hash of the URL.
//
// Concurrency: Run's goroutine owns what was written. Restore is called before
// Run; Changed may be called from anywhere.
package store
