package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// openers is how many connections open sessions and streams at the same time.
const openers = 16

// streamConn is one client's GET stream. Its own goroutine reads it.
type streamConn struct {
	conn net.Conn
	tail []byte // the end of what was read, shorter than a notification
	seen int    // notifications that it has read
}

// audience is all clients that listen, and what they have heard.
type audience struct {
	streams []*streamConn
	readers sync.WaitGroup
	failed  chan error // the first stream that ended

	mu    sync.Mutex
	heard []int         // guarded by mu: how many streams have read that many notifications, and more
	news  chan struct{} // guarded by mu: closed at the next complete round
}

func newAudience() *audience {
	return &audience{failed: make(chan error, 1), news: make(chan struct{})}
}

// open opens n sessions and a stream in each. Sessions are opened on connections
// of their own, one after the other on each, as their requests leave nothing
// behind at the gateway.
func (a *audience) open(ctx context.Context, addr string, n int) error {
	a.streams = make([]*streamConn, n)
	grp, ctx := errgroup.WithContext(ctx)
	for worker := range openers {
		grp.Go(func() error {
			c, err := dial(ctx, addr)
			if err != nil {
				return err
			}
			defer c.conn.Close()
			for i := worker; i < n && err == nil; i += openers {
				if err = c.open(); err == nil {
					a.streams[i], err = listenTo(ctx, addr, c.sessionID)
				}
			}
			return err
		})
	}
	if err := grp.Wait(); err != nil {
		return err //nolint:wrapcheck // of this package
	}
	for _, s := range a.streams {
		a.readers.Go(func() { a.read(s) })
	}
	return nil
}

// close ends all streams and waits for their readers.
func (a *audience) close() {
	for _, s := range a.streams {
		if s != nil {
			_ = s.conn.Close()
		}
	}
	a.readers.Wait()
}

// listenTo opens the GET stream of a session and returns when the answer has
// begun.
func listenTo(ctx context.Context, addr, sessionID string) (*streamConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	s := &streamConn{conn: conn}
	_ = conn.SetDeadline(time.Now().Add(requestTime)) // fails on a dead connection, as what follows will
	_, err = fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: text/event-stream\r\n"+
		"Mcp-Session-Id: %s\r\nMCP-Protocol-Version: %s\r\n\r\n", addr, userAgent, sessionID, revision)
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("stream: %w", err)
	}
	_ = conn.SetDeadline(time.Time{}) // as above
	return s, nil
}

// begin reads the head of the answer and the comment with which the stream
// begins.
func (s *streamConn) begin() error {
	buf := make([]byte, 4<<10)
	for n := 0; n < len(buf); {
		m, err := s.conn.Read(buf[n:])
		n += m
		switch {
		case n > 12 && !bytes.HasPrefix(buf, []byte("HTTP/1.1 200")):
			return fmt.Errorf("%w: %.300s", errAnswer, buf[:n])
		case bytes.Contains(buf[:n], []byte(": connected\n\n")):
			return nil
		case err != nil:
			return err //nolint:wrapcheck // of the connection
		}
	}
	return fmt.Errorf("%w: no begin of the stream in %.300s", errAnswer, buf)
}

// read counts notifications until the stream ends.
func (a *audience) read(s *streamConn) {
	buf := make([]byte, 512)
	for {
		n, err := s.conn.Read(buf)
		for range s.count(buf[:n]) {
			a.hear(s)
		}
		if err != nil {
			select {
			case a.failed <- fmt.Errorf("stream: %w", err):
			default: // one is enough
			}
			return
		}
	}
}

// count returns how many notifications end in what was read now. One may come in
// two parts.
func (s *streamConn) count(p []byte) int {
	const sign = `"` + listChanged + `"`
	all := append(s.tail, p...)
	n := 0
	for {
		at := bytes.Index(all, []byte(sign))
		if at < 0 {
			break
		}
		n++
		all = all[at+len(sign):]
	}
	s.tail = append(s.tail[:0], all[max(0, len(all)-len(sign)+1):]...)
	return n
}

// hear counts a notification of a stream.
func (a *audience) hear(s *streamConn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.seen++
	for len(a.heard) < s.seen {
		a.heard = append(a.heard, 0)
	}
	if a.heard[s.seen-1]++; a.heard[s.seen-1] == len(a.streams) {
		close(a.news)
		a.news = make(chan struct{})
	}
}

// await waits until every stream has read n notifications.
func (a *audience) await(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		done, count := 0, len(a.streams)
		if len(a.heard) >= n {
			done = a.heard[n-1]
		}
		news := a.news
		a.mu.Unlock()
		if done == count {
			return nil
		}
		select {
		case <-news:
		case err := <-a.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d streams have read notification %d", errAnswer, done, count, n)
		}
	}
}

// most is the largest number of notifications that a stream has read.
func (a *audience) most() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.heard)
}
