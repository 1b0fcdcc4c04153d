package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// countingConn counts the bytes written to a connection. A TLS connection lies
// on top of it.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func countingDialer(d *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(hurryKey{}) != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, hurry)
			defer cancel()
		}
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: conn}, nil
	}
}

// delivery watches whether a request can have reached its server.
//
// It exists because net/http does not tell, and because what net/http does by
// itself is not safe here: with Request.GetBody set, its HTTP/1 client repeats a
// POST that carries an Idempotency-Key although the first may have been served,
// and its HTTP/2 client repeats one that the server reset with PROTOCOL_ERROR.
// So Post never sets GetBody, with which net/http repeats no body of which it
// has read anything, and repeats by itself what delivery says is safe.
//
// Its methods are called by net/http's goroutines, hence the atomics.
type delivery struct {
	conn    atomic.Pointer[countingConn]
	start   atomic.Int64 // conn.written before this request
	reused  atomic.Bool
	h2      atomic.Bool
	headers atomic.Bool // the headers were written (HTTP/2: as frames)
}

func (d *delivery) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: d.gotConn, WroteHeaders: func() { d.headers.Store(true) }}
}

func (d *delivery) gotConn(info httptrace.GotConnInfo) {
	conn := info.Conn
	if t, ok := conn.(*tls.Conn); ok {
		d.h2.Store(t.ConnectionState().NegotiatedProtocol == "h2")
		conn = t.NetConn()
	}
	d.reused.Store(info.Reused)
	if c, ok := conn.(*countingConn); ok {
		d.start.Store(c.written.Load())
		d.conn.Store(c)
	}
}

// connected tells whether the request got a connection.
func (d *delivery) connected() bool { return d.conn.Load() != nil }

// happened tells, after the round trip failed with err, whether any of the
// request can have been processed by the server.
func (d *delivery) happened(ctx context.Context, err error) bool {
	c := d.conn.Load()
	switch {
	case c == nil:
		return false // never got a connection
	case !d.h2.Load():
		// HTTP/1: the connection was this request's alone, and net/http waits
		// for its writer before it returns an error.
		return c.written.Load() > d.start.Load()
	case refusedByPeer(err):
		return false
	default:
		// HTTP/2: others write on the connection too. After a cancellation the
		// writer may still be at work.
		return d.headers.Load() || ctx.Err() != nil
	}
}

// refusedByPeer tells whether an HTTP/2 server said that it did not process the
// request (RFC 9113, section 8.7): by REFUSED_STREAM, or by a GOAWAY with a
// lower stream id. net/http only says it in the text of the error it gives when
// it cannot repeat a body; a changed text makes us more careful, not less.
func refusedByPeer(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "http2: Transport: cannot retry err [") &&
		(strings.Contains(text, "; REFUSED_STREAM;") || strings.Contains(text, "[http2: Transport received Server's graceful shutdown GOAWAY]"))
}
