package upstream

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/registry"
)

// pair is a server with two addresses: one name, one port.
type pair struct {
	servers map[string]*mcptest.Server // by address
	names   *mcptest.DNS
	opt     Options
	url     string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{names: mcptest.NewDNS(t)}
	p.names.Set("multi.test", "127.0.0.1", "127.0.0.2")
	var one, two string
	require.Eventually(t, func() bool { // until the port is free on both
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return false
		}
		defer func() { _ = a.Close() }()
		at := netip.MustParseAddrPort(a.Addr().String())
		one, two = at.String(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port()).String()
		b, err := net.Listen("tcp", two)
		if err == nil {
			_ = b.Close()
		}
		return err == nil
	}, wait, time.Millisecond)
	p.servers = map[string]*mcptest.Server{}
	for _, at := range []string{one, two} {
		p.servers[at] = mcptest.New(t, func(s *mcptest.Server) { s.Listen = at })
	}
	_, port, err := net.SplitHostPort(one)
	require.NoError(t, err)
	p.url = "http://multi.test:" + port + mcptest.Path
	p.opt = fast
	p.opt.Resolver = p.names.Resolver()
	return p
}

func (p *pair) other(address string) (string, *mcptest.Server) {
	for at, s := range p.servers {
		if at != address {
			return at, s
		}
	}
	return "", nil
}

func (p *pair) open(t *testing.T, c *Client) *Opened {
	t.Helper()
	o, err := c.Open(ctxOf(t), OpenParams{})
	require.NoError(t, err)
	require.Contains(t, p.servers, o.Address)
	return o
}

// Sessions spread over the addresses, and each stays at its own.
func TestSessionsAtTheirAddresses(t *testing.T) {
	p := newPair(t)
	c := client(t, p.url, p.opt)
	at := map[string]int{}
	for range 30 {
		o := p.open(t, c)
		at[o.Address]++
		for range 3 {
			_, err := c.Call(ctxOf(t), o.Ref, "tools/list", nil)
			require.NoError(t, err)
		}
		require.NoError(t, c.Delete(ctxOf(t), o.Ref))
		assert.Equal(t, 1, p.servers[o.Address].Deleted(o.ID))
	}
	assert.Len(t, at, 2, "one in 2^29 runs")
	for _, r := range p.servers[firstOf(at)].Requests() {
		assert.Contains(t, r.Host, "multi.test:")
	}
}

func firstOf(m map[string]int) string {
	for k := range m {
		return k
	}
	return ""
}

// A dead address: its sessions' requests are not delivered, here or elsewhere,
// and new sessions open at the other.
func TestDeadAddress(t *testing.T) {
	p := newPair(t)
	c := client(t, p.url, p.opt)
	o := p.open(t, c)
	otherAt, other := p.other(o.Address)
	p.servers[o.Address].Stop()
	before := len(other.Requests())
	var e *Error
	require.Eventually(t, func() bool { // it may first write to the connection that was cut
		_, err := c.Call(ctxOf(t), o.Ref, "tools/list", nil)
		require.ErrorAs(t, err, &e)
		return !e.Delivered
	}, wait, time.Millisecond)
	assert.Len(t, other.Requests(), before)
	assert.True(t, c.Elsewhere(ctxOf(t), o.Ref))
	for range 10 {
		assert.Equal(t, otherAt, p.open(t, c).Address)
	}
	other.Stop()
	_, err := c.Open(ctxOf(t), OpenParams{})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, registry.ReasonUnreachable, e.Reason)
}

// Where the name has no other address, a session may come back with its server.
func TestElsewhere(t *testing.T) {
	p := newPair(t)
	c := client(t, p.url, p.opt)
	o := p.open(t, c)
	host, _, err := net.SplitHostPort(o.Address)
	require.NoError(t, err)
	p.names.Set("multi.test", host)
	assert.False(t, c.Elsewhere(ctxOf(t), o.Ref))
	p.names.Set("multi.test")
	assert.False(t, c.Elsewhere(ctxOf(t), o.Ref))
	_, err = c.Call(ctxOf(t), o.Ref, "tools/list", nil)
	require.NoError(t, err, "an open session needs no name")
	_, err = c.Open(context.Background(), OpenParams{})
	require.ErrorContains(t, err, "cannot be resolved")
	assert.False(t, c.Elsewhere(ctxOf(t), Ref{}))
}

// The certificate is for the name, not for the address that is connected to.
func TestTLSNameOfPinned(t *testing.T) {
	s := mcptest.New(t, func(s *mcptest.Server) { s.TLS, s.H2 = true, true })
	names := mcptest.NewDNS(t)
	names.Set("example.com", "127.0.0.1") // which the certificate is for
	names.Set("multi.test", "127.0.0.1")
	_, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	opt := fast
	opt.Resolver = names.Resolver()
	for host, good := range map[string]bool{"example.com": true, "multi.test": false} {
		cfg := config.Server{
			Name: "s", URL: "https://" + host + ":" + port + mcptest.Path,
			TLS: &config.ServerTLS{CAFile: mcptest.WriteFile(t, s.CAPEM())},
		}
		c, err := NewClient(cfg, opt)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		o, err := c.Open(ctxOf(t), OpenParams{})
		if !good {
			require.ErrorContains(t, err, "certificate is for another host name")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, s.Addr(), o.Address)
	}
}

// An address that neither takes nor refuses a connection costs a second.
func TestHurry(t *testing.T) {
	dial := countingDialer(&net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx := ctxOf(t)
	_, err := dial(inHurry(ctx, true), "tcp", "127.0.0.1:1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, ctx.Err())
}

// An address that failed a moment ago is tried last.
func TestFailedAddress(t *testing.T) {
	p := newPair(t)
	c := client(t, p.url, p.opt)
	c.places.failed("127.0.0.9:1")
	at, _ := p.other("")
	c.places.failed(at)
	for range 10 {
		assert.NotEqual(t, at, p.open(t, c).Address, "it failed a moment ago")
	}
	assert.Len(t, c.places.avoid, 2)
}

// D17: the watcher moves to another address without saying that the server is
// gone; when all addresses are dead it says so.
func TestWatcherMoves(t *testing.T) {
	p := newPair(t)
	l := newLedger(t)
	m := NewManager(l, p.opt)
	t.Cleanup(m.Close)
	m.Apply([]config.Server{{Name: "s", URL: p.url, Poll: config.Duration(time.Hour)}})
	l.await(0, is("ready"))
	var home string
	for at, s := range p.servers {
		if s.Initialized() > 0 {
			home = at
		}
	}
	_, other := p.other(home)
	p.servers[home].Stop()
	other.Await(1, wait, func(r *mcptest.Request) bool { return r.Method == "tools/list" })
	assert.Zero(t, l.count("unavailable"))
	other.Stop()
	l.await(0, is("unavailable"))
}
