package upstream

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"patchbay.dev/registry"
)

const (
	// avoidFor is how long an address that took no connection is tried last.
	avoidFor = 30 * time.Second
	// maxTries is at how many addresses one session is tried to be opened.
	maxTries = 8
	// hurry bounds connecting where there is one more address to try.
	hurry = time.Second
)

// places are the addresses of one server. A session lives at one of them, so each
// request goes to the address that its Ref names: net/http keeps connections
// apart by address. A server whose url names an IP address has none here, and
// costs nothing.
type places struct {
	name, port string // name is empty for an IP address
	resolver   *net.Resolver

	mu    sync.Mutex
	avoid map[string]time.Time // guarded by mu; by address, until when
}

func placesOf(host, port, scheme string, resolver *net.Resolver) *places {
	p := &places{name: host, port: port, resolver: resolver}
	if _, err := netip.ParseAddr(host); err == nil {
		p.name = ""
	}
	switch {
	case port == "" && scheme == "https":
		p.port = "443"
	case port == "":
		p.port = "80"
	}
	return p
}

// find asks the resolver and returns the addresses as "ip:port", in the order in
// which to try them: sessions spread over those of the family that the system
// prefers (RFC 6724), then over those of the other; those that failed come last.
// For an IP address it is one empty string.
func (p *places) find(ctx context.Context) ([]string, error) {
	if p.name == "" {
		return []string{""}, nil
	}
	ips, err := p.resolver.LookupNetIP(ctx, "ip", p.name)
	if err != nil {
		return nil, networkError(err, false)
	}
	if len(ips) == 0 {
		return nil, networkError(&net.DNSError{Err: "no address", Name: p.name, IsNotFound: true}, false)
	}
	preferred := ips[0].Unmap().Is4()
	all := make([]string, len(ips))
	rank := make(map[string]int, len(ips))
	p.mu.Lock()
	for i, ip := range ips {
		all[i] = net.JoinHostPort(ip.Unmap().String(), p.port)
		if ip.Unmap().Is4() != preferred {
			rank[all[i]] = 1
		}
		if time.Now().Before(p.avoid[all[i]]) {
			rank[all[i]] = 2
		}
	}
	p.mu.Unlock()
	slices.Sort(all)
	all = slices.Compact(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b string) int { return rank[a] - rank[b] })
	return all, nil
}

// failed says that the address took no connection.
func (p *places) failed(address string) {
	if address == "" {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, until := range p.avoid {
		if until.Before(now) {
			delete(p.avoid, a)
		}
	}
	if p.avoid == nil {
		p.avoid = map[string]time.Time{}
	}
	p.avoid[address] = now.Add(avoidFor)
}

// Elsewhere tells whether the server has an address besides that of ref now. It
// is for who could not reach that one: if so, the session is not worth waiting
// for, and [Client.Open] finds another place. If not, the server may come back
// with its sessions.
func (c *Client) Elsewhere(ctx context.Context, ref Ref) bool {
	if ref.Address == "" {
		return false
	}
	all, err := c.places.find(ctx)
	return err == nil && slices.ContainsFunc(all, func(a string) bool { return a != ref.Address })
}

// openAny is the way of Open through the addresses: the first that answers
// counts. A session that was opened while its answer was lost is nobody's, and
// left to its server.
func (c *Client) openAny(ctx context.Context, p OpenParams) (*Opened, error) {
	all, err := c.places.find(ctx)
	if err != nil {
		return nil, err
	}
	all = all[:min(len(all), maxTries)]
	for i, address := range all {
		last := i == len(all)-1
		o, err := c.openAt(inHurry(ctx, !last), address, p)
		if err == nil || last || ctx.Err() != nil {
			return o, err
		}
		if reason, _ := reasonOf(err); reason != registry.ReasonUnreachable {
			return nil, err
		}
	}
	return nil, networkError(net.ErrClosed, false) // not reached: there is a last one
}

type hurryKey struct{}

// inHurry makes connecting for a request short.
func inHurry(ctx context.Context, yes bool) context.Context {
	if !yes {
		return ctx
	}
	return context.WithValue(ctx, hurryKey{}, true)
}
