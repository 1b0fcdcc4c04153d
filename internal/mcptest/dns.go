package mcptest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// dnsTTL is how long an answer may be kept, in seconds: the shortest that asks
// again soon.
const dnsTTL = 1

// DNS is a name server on loopback UDP. It is safe for concurrent use.
type DNS struct {
	tb   testing.TB
	conn net.PacketConn

	mu    sync.Mutex
	names map[string][]netip.Addr // guarded by mu; by lower-case name
}

// NewDNS starts a name server that knows no name. It ends with the test.
func NewDNS(tb testing.TB) *DNS {
	tb.Helper()
	var lc net.ListenConfig
	conn, err := lc.ListenPacket(context.Background(), "udp", anyPort)
	require.NoError(tb, err)
	d := &DNS{tb: tb, conn: conn, names: map[string][]netip.Addr{}}
	var serving sync.WaitGroup
	serving.Go(d.serve)
	tb.Cleanup(func() {
		_ = conn.Close() // ends serve
		serving.Wait()
	})
	return d
}

// Set makes the addresses those of name; none makes the name unknown.
func (d *DNS) Set(name string, addrs ...string) {
	list := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		list[i] = netip.MustParseAddr(a)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[strings.ToLower(name)] = list
}

// Addr is the "ip:port" that it answers at.
func (d *DNS) Addr() string { return d.conn.LocalAddr().String() }

// Resolver asks this server whatever the system says.
func (d *DNS) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", d.Addr())
	}}
}

func (d *DNS) serve() {
	buf := make([]byte, 4<<10)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				d.tb.Errorf("mcptest: dns: %v", err)
			}
			return
		}
		if out, err := d.answer(buf[:n]); err == nil {
			_, _ = d.conn.WriteTo(out, from) // who asked may be gone
		}
	}
}

func (d *DNS) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if len(m.Questions) != 1 {
		m.RCode = dnsmessage.RCodeFormatError
		return m.Pack()
	}
	q := m.Questions[0]
	d.mu.Lock()
	addrs := d.names[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]
	d.mu.Unlock()
	if len(addrs) == 0 {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: dnsTTL}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}
