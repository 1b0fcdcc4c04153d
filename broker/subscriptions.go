package broker

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/router"
)

// subscriptionsPerSession bounds what one client can be subscribed to.
const subscriptionsPerSession = 200

// subscriptions says which sessions want to hear of which resource. Toward the
// server there is one subscription, however many clients; see upstream.Manager.
type subscriptions struct {
	mu  sync.Mutex
	all map[resource]map[session.ID]string // guarded by mu; the URI that the client used
	per map[session.ID]int                 // guarded by mu

	turns [64]sync.Mutex // one for each resource, by its hash; held over the server's answer
}

func (s *subscriptions) turn(res resource) *sync.Mutex {
	return &s.turns[maphash.Comparable(hashSeed, res)%uint64(len(s.turns))]
}

// hashSeed spreads resources over locks; it is not changed.
var hashSeed = maphash.MakeSeed()

// resource is a server's resource by the server's own URI.
type resource struct{ server, uri string }

// add reports whether it is the first subscription to the resource, and false
// for ok when the session has too many.
func (s *subscriptions) add(res resource, id session.ID, uri string) (first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all, s.per = map[resource]map[session.ID]string{}, map[session.ID]int{}
	}
	subs := s.all[res]
	if _, again := subs[id]; !again {
		if s.per[id] >= subscriptionsPerSession {
			return false, false
		}
		s.per[id]++
	}
	if subs == nil {
		subs = map[session.ID]string{}
		s.all[res] = subs
		first = true
	}
	subs[id] = uri
	return first, true
}

// remove reports whether it was the last one.
func (s *subscriptions) remove(res resource, id session.ID) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeLocked(res, id)
}

func (s *subscriptions) removeLocked(res resource, id session.ID) (last bool) {
	subs := s.all[res]
	if _, ok := subs[id]; !ok {
		return false
	}
	delete(subs, id)
	if s.per[id]--; s.per[id] == 0 {
		delete(s.per, id)
	}
	if len(subs) > 0 {
		return false
	}
	delete(s.all, res)
	return true
}

// forget removes a session and returns the resources that nobody wants any more.
func (s *subscriptions) forget(id session.ID) []resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.per[id] == 0 {
		return nil
	}
	var out []resource
	for res := range s.all {
		if s.removeLocked(res, id) {
			out = append(out, res)
		}
	}
	return out
}

// wanted tells whether anybody is subscribed.
func (s *subscriptions) wanted(res resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all[res]) > 0
}

// told is one client that hears of an update, by the URI that it knows.
type told struct {
	id  session.ID
	uri string
}

// who returns the subscribers of an updated resource. The URI may be that of a
// part of what was subscribed to (2025-11-25, Resources, "Subscriptions").
func (s *subscriptions) who(server, uri string) []told {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []told
	for id, known := range s.all[resource{server, uri}] {
		out = append(out, told{id, known})
	}
	if len(out) > 0 {
		return out
	}
	for res, subs := range s.all {
		rest, part := strings.CutPrefix(uri, res.uri)
		if res.server != server || !part {
			continue
		}
		for id, known := range subs {
			out = append(out, told{id, known + rest})
		}
	}
	return out
}

// Updated tells the subscribers that a server's resource has changed; message is
// the server's notification. It does not block.
func (b *Broker) Updated(server, uri string, message []byte) {
	var m jsonrpc.Message
	if jsonrpc.Scan(message, &m) != nil {
		return
	}
	for _, t := range b.subscriptions.who(server, uri) {
		b.hub.send(t.id, messageEvent(jsonrpc.AppendSplice(nil, message, m.URI.Span, t.uri)))
	}
}

// subscribe serves resources/subscribe and unsubscribe and returns the outcome.
func (b *Broker) subscribe(w *response, r *http.Request, d *router.Decision, req *router.Request) string {
	res := resource{d.Call.Server.Config.Name, d.Call.Name}
	id := d.Session.Claims().ID
	// Not the client's context: others share what is done here. And one after
	// the other for each resource, so that the server's last word is ours.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTimeout)
	defer cancel()
	turn := b.subscriptions.turn(res)
	turn.Lock()
	defer turn.Unlock()
	if d.Method == mcp.MethodUnsubscribe {
		if b.subscriptions.remove(res, id) {
			b.unsubscribe(ctx, res)
		}
		writeJSON(w, http.StatusOK, mcp.Result(req.ID(), []byte("{}")))
		return "ok"
	}
	defer d.Session.Hold()() // an entry, so that the table tells when it is forgotten
	first, ok := b.subscriptions.add(res, id, req.Message.URI.Value)
	if !ok {
		return b.fail(w, r, req, &mcp.Error{
			Code: mcp.CodeServer, Reason: mcp.ReasonOverloaded, Status: http.StatusOK,
			Message: "too many subscriptions in this session; unsubscribe from some first",
		})
	}
	if first {
		if err := b.Upstreams.Subscribe(ctx, res.server, res.uri); err != nil {
			b.subscriptions.remove(res, id)
			return b.fail(w, r, req, subscribeError(res.server, err))
		}
	}
	writeJSON(w, http.StatusOK, mcp.Result(req.ID(), []byte("{}")))
	return "ok"
}

// fail answers with an error of the gateway's own and returns the outcome.
func (b *Broker) fail(w *response, r *http.Request, req *router.Request, e *mcp.Error) string {
	b.refuse(w, r, e, req.ID())
	return string(e.Reason)
}

func (b *Broker) unsubscribe(ctx context.Context, res resource) {
	if err := b.Upstreams.Unsubscribe(ctx, res.server, res.uri); err != nil {
		b.Log.Debug("not unsubscribed", "server", res.server, "error", err)
	}
}

// subscribeError passes on what the server said.
func subscribeError(server string, err error) *mcp.Error {
	if rpc, ok := errors.AsType[*upstream.RPCError](err); ok {
		return &mcp.Error{Code: rpc.Code, Message: rpc.Message, Reason: mcp.ReasonBackend, Status: http.StatusOK}
	}
	return router.ErrUnavailable(server)
}

// Forgotten drops what is kept here of a session whose memory was freed. It does
// not block.
func (b *Broker) Forgotten(id session.ID) {
	b.asks.drop(nil, id)
	b.hub.forget(id)
	b.streams.forget(id)
	last := b.subscriptions.forget(id)
	if len(last) == 0 {
		return
	}
	b.background.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, answerTimeout)
		defer cancel()
		for _, res := range last {
			turn := b.subscriptions.turn(res)
			turn.Lock()
			if !b.subscriptions.wanted(res) {
				b.unsubscribe(ctx, res)
			}
			turn.Unlock()
		}
	})
}
