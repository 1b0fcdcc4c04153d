// Package registry holds the merged catalog of all servers.
//
// Watchers report to a [Registry] what their server offers and how it stands;
// after each report the Registry builds a new immutable [Snapshot], swaps it in
// atomically and tells its subscribers what changed ([Event]). Requests load one
// Snapshot, take their [View] of it and ask that one View for everything, so
// that what is listed can be called and what is hidden cannot.
//
// The work per server (checking schemas, rendering definitions) is done once
// when its catalog arrives; building a Snapshot merges what is ready. The bytes
// of a definition are kept: only the name is replaced, a missing description is
// added, and the source server is put into _meta.
//
// Concurrency: all methods may be called concurrently. Mutators run one at a
// time; subscribers are called in order, under the Registry's lock, and must
// neither block nor call a mutator.
package registry
