package upstream

import (
	"context"
	"errors"
	"maps"
	"sync"

	"patchbay.dev/internal/mcp"
)

// ErrNotWatched is returned for a subscription at a server that has no living
// session to hold it.
var ErrNotWatched = errors.New("upstream: the server is not connected")

// subscriptions are the resources that a watcher's session is subscribed to, for
// all clients together. They outlive the session: the next one takes them over.
type subscriptions struct {
	mu   sync.Mutex
	uris map[string]bool // guarded by mu
	ref  *Ref            // guarded by mu: the living session; nil while there is none
}

type uriParams struct {
	URI string `json:"uri"`
}

// Subscribe subscribes the watcher of the server to a resource, by the server's
// own URI. The error is [ErrNotWatched], or the server's (an [*RPCError]) or the
// way's (an [*Error]); then nothing is kept.
func (m *Manager) Subscribe(ctx context.Context, server, uri string) error {
	w, ok := m.watcher(server)
	if !ok {
		return ErrNotWatched
	}
	w.subs.mu.Lock()
	ref := w.subs.ref
	if ref == nil {
		w.subs.mu.Unlock()
		return ErrNotWatched
	}
	if w.subs.uris == nil {
		w.subs.uris = map[string]bool{}
	}
	w.subs.uris[uri] = true
	to := *ref
	w.subs.mu.Unlock()
	_, err := w.client.Call(ctx, to, mcp.MethodSubscribe, uriParams{uri})
	if err != nil {
		w.subs.mu.Lock()
		delete(w.subs.uris, uri)
		w.subs.mu.Unlock()
	}
	return err
}

// Unsubscribe undoes Subscribe. A server that is not there now will not be asked
// for the resource when it is.
func (m *Manager) Unsubscribe(ctx context.Context, server, uri string) error {
	w, ok := m.watcher(server)
	if !ok {
		return nil
	}
	w.subs.mu.Lock()
	delete(w.subs.uris, uri)
	ref := w.subs.ref
	if ref == nil {
		w.subs.mu.Unlock()
		return nil
	}
	to := *ref
	w.subs.mu.Unlock()
	_, err := w.client.Call(ctx, to, mcp.MethodUnsubscribe, uriParams{uri})
	return err
}

// subscribeAll makes ref the session of the subscriptions and subscribes it to what the
// last one had.
func (w *watcher) subscribeAll(ctx context.Context, ref Ref) {
	w.subs.mu.Lock()
	w.subs.ref = &ref
	var uris []string
	for uri := range w.subs.uris {
		uris = append(uris, uri)
	}
	w.subs.mu.Unlock()
	for _, uri := range uris {
		if _, err := w.client.Call(ctx, ref, mcp.MethodSubscribe, uriParams{uri}); err != nil {
			w.log.Warn("subscription lost with the server's session", "uri", uri, "error", err)
		}
	}
}

// all returns a copy of the subscriptions.
func (s *subscriptions) all() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.uris)
}

// forgetSession forgets the session, not the subscriptions.
func (w *watcher) forgetSession() {
	w.subs.mu.Lock()
	w.subs.ref = nil
	w.subs.mu.Unlock()
}
