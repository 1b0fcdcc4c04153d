package broker

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
)

// feedPause is the pause before the GET stream of a backend session is opened
// again, doubled up to maxFeedPause.
const (
	feedPause    = time.Second
	maxFeedPause = 30 * time.Second
)

// feeds are the GET streams of backend sessions, on which a backend sends what
// belongs to no call. One is open while its client has a stream on which it
// could hear of it.
type feeds struct {
	mu  sync.Mutex
	all map[session.ID]map[string]*feed // guarded by mu; by server
}

type feed struct {
	backend *session.Backend
	cancel  context.CancelFunc
}

// feed opens the GET stream of a backend session, unless it is open or its
// client has no stream.
func (b *Broker) feed(s *session.Session, srv *registry.Server, client *upstream.Client, be *session.Backend) {
	id := s.Claims().ID
	if !srv.Facts.Stream || !b.hub.has(id) {
		return
	}
	ctx, cancel := context.WithCancel(b.ctx)
	f := &feed{backend: be, cancel: cancel}
	if !b.feeds.put(id, srv.Config.Name, f) {
		cancel()
		return
	}
	src := &source{b: b, session: s, server: srv.Config.Name, client: client, to: ref(be), owner: f}
	b.background.Go(func() {
		defer s.Hold()()
		defer b.feeds.remove(id, srv.Config.Name, f)
		defer b.abandon(f)
		src.follow(ctx)
	})
	if !b.hub.has(id) { // the stream was closed meanwhile, and nobody saw the feed
		b.feeds.remove(id, srv.Config.Name, f)
	}
}

// feedAll opens the GET streams of all backend sessions of a client that has just
// opened its own.
func (b *Broker) feedAll(s *session.Session) {
	servers := b.Registry.Snapshot()
	for server, be := range s.Backends() {
		srv, ok := servers.Server(server)
		client, known := b.Upstreams.ClientAt(server, be.Epoch)
		if ok && known && srv.Cluster == be.Epoch {
			b.feed(s, srv, client, be)
		}
	}
}

// put reports false when the backend session has its stream already. One of an
// older backend session is ended.
func (fs *feeds) put(id session.ID, server string, f *feed) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all == nil {
		fs.all = map[session.ID]map[string]*feed{}
	}
	if fs.all[id] == nil {
		fs.all[id] = map[string]*feed{}
	}
	if old := fs.all[id][server]; old != nil {
		if old.backend == f.backend {
			return false
		}
		old.cancel()
	}
	fs.all[id][server] = f
	return true
}

func (fs *feeds) remove(id session.ID, server string, f *feed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.cancel()
	if fs.all[id][server] != f {
		return
	}
	delete(fs.all[id], server)
	if len(fs.all[id]) == 0 {
		delete(fs.all, id)
	}
}

// stop ends all feeds of a session: nobody hears them any more.
func (fs *feeds) stop(id session.ID) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.all[id] {
		f.cancel()
	}
	delete(fs.all, id) // so that a client that comes back at once gets new ones
}

// stopServer ends all feeds of a server.
func (fs *feeds) stopServer(server string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for id, all := range fs.all {
		if f := all[server]; f != nil {
			f.cancel()
			delete(all, server)
		}
		if len(all) == 0 {
			delete(fs.all, id)
		}
	}
}

// follow reads the backend's stream, again and again, until ctx ends or the
// backend offers none.
func (s *source) follow(ctx context.Context) {
	pause, last := feedPause, ""
	for {
		opened := time.Now()
		err := s.client.Stream(ctx, s.to, last, func(e upstream.Event) error {
			last = e.ID
			if e.Data != "" {
				s.deliver([]byte(e.Data))
			}
			return nil
		})
		if ctx.Err() != nil || errors.Is(err, upstream.ErrNoStream) || errors.Is(err, upstream.ErrLost) {
			return
		}
		if time.Since(opened) > maxFeedPause {
			pause = feedPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, maxFeedPause)
	}
}

// deliver passes one message on to the client's newest stream. What concerns
// the catalog and subscriptions comes by way of the watcher, merged.
func (s *source) deliver(data []byte) {
	var m jsonrpc.Message
	if jsonrpc.Scan(data, &m) != nil || m.Kind == jsonrpc.Response {
		return
	}
	if forWatcher(m.Method.Value) {
		return
	}
	if out := s.message(data); out != nil {
		s.b.hub.send(s.session.Claims().ID, messageEvent(out))
	}
}

// forWatcher tells whether a notification reaches clients by way of the server's
// watcher.
func forWatcher(method string) bool {
	switch method {
	case mcp.NotificationTools, mcp.NotificationPrompts, mcp.NotificationResources, mcp.NotificationUpdated:
		return true
	}
	return false
}

// messageEvent renders a message as an event.
func messageEvent(data []byte) []byte {
	out := make([]byte, 0, len(data)+24)
	out = append(out, "event: message\n"...)
	return append(appendData(out, data), '\n')
}

// appendData appends data as data fields, a line each.
func appendData(out, data []byte) []byte {
	for {
		line, rest, more := bytes.Cut(data, []byte("\n"))
		out = append(append(append(out, "data: "...), line...), '\n')
		if !more {
			return out
		}
		data = rest
	}
}
