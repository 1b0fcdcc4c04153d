package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// connections is how many connections the load comes on, each with a session of
// its own and one request at a time.
const connections = 32

// requestTime bounds one request: what takes longer has failed.
const requestTime = 10 * time.Second

// client is one connection. One goroutine uses it at a time.
type client struct {
	addr      string
	conn      net.Conn
	r         *bufio.Reader
	sessionID string
	response  message
	head      []byte // of the requests, without the length
	out       []byte
	next      int64 // id
}

func dial(ctx context.Context, addr string) (*client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return &client{addr: addr, conn: conn, r: bufio.NewReaderSize(conn, maxLine), next: placeholder}, nil
}

// use sets the session of all further requests.
func (c *client) use(sessionID string) {
	c.sessionID = sessionID
	c.head = fmt.Appendf(c.head[:0], "POST /mcp HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n", c.addr, userAgent)
	if sessionID != "" {
		c.head = fmt.Appendf(c.head, "Mcp-Session-Id: %s\r\nMCP-Protocol-Version: %s\r\n", sessionID, revision)
	}
	c.head = append(c.head, "Content-Length: "...)
}

// post sends a body and reads the answer into c.response, whose status must be
// the given one.
func (c *client) post(body []byte, status string) error {
	c.out = append(c.out[:0], c.head...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	if err := c.conn.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if err := c.response.read(c.r); err != nil {
		return fmt.Errorf("load: answer: %w", err)
	}
	if _, rest, _ := bytes.Cut(c.response.start, []byte(" ")); !bytes.HasPrefix(rest, []byte(status)) {
		return fmt.Errorf("%w: %s, expected %s: %.300s", errAnswer, c.response.start, status, c.response.body)
	}
	return nil
}

// open opens a session (MCP 2025-11-25, Lifecycle, "Initialization").
func (c *client) open() error { return c.openAs("{}") }

// openAs opens a session of a client with these capabilities.
func (c *client) openAs(capabilities string) error {
	c.use("")
	err := c.post([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+revision+
		`","capabilities":`+capabilities+`,"clientInfo":{"name":"bench","version":"1"}}}`), "200")
	if err != nil {
		return err
	}
	if len(c.response.sessionID) == 0 {
		return fmt.Errorf("%w: no session id", errAnswer)
	}
	c.use(string(c.response.sessionID))
	return c.post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), "202")
}

// request is a case's body whose id counts up in place.
type request struct{ body, id []byte }

func (c *benchCase) request() *request {
	body := bytes.Clone(c.body)
	at := bytes.Index(body, fmt.Append(nil, placeholder))
	return &request{body, body[at : at+len(fmt.Sprint(placeholder))]}
}

func (r *request) setID(id int64) { strconv.AppendInt(r.id[:0], id, 10) }

// learn sends a case's request once and makes of the checked answer what all
// others must be. With fixedID the answer always has the same id.
func (c *client) learn(k *benchCase, fixedID bool) (expected, error) {
	r := k.request()
	id := int64(placeholder)
	if !fixedID {
		c.next++
		id = c.next
	}
	r.setID(id)
	if err := c.post(r.body, "200"); err != nil {
		return expected{}, err
	}
	return k.learn(c.response.body, id)
}

// window is what one connection did in a window of time.
type window struct {
	took []time.Duration
	err  error
}

// run sends requests until the time is over. The one that is under way then is
// finished and counted.
func (c *client) run(k *benchCase, want *expected, fixedID bool, until time.Time) window {
	w := window{took: make([]time.Duration, 0, 4096)}
	r := k.request()
	wantID := []byte(strconv.Itoa(placeholder))
	if !fixedID {
		wantID = r.id
	}
	for now := time.Now(); now.Before(until); {
		if c.next++; c.next >= 10*placeholder {
			c.next = placeholder
		}
		r.setID(c.next)
		if w.err = c.post(r.body, "200"); w.err != nil {
			return w
		}
		if w.err = want.check(k.message(c.response.body), wantID); w.err != nil {
			return w
		}
		end := time.Now()
		w.took = append(w.took, end.Sub(now))
		now = end
	}
	return w
}

// load is what all connections did in a window.
type load struct {
	requests int
	rate     float64 // per second
	p50, p99 time.Duration
}

// generate loads a shape for the given time.
func generate(clients []*client, k *benchCase, want *expected, fixedID bool, during time.Duration) (load, error) {
	begin := time.Now()
	windows := make([]window, len(clients))
	var grp errgroup.Group
	for i, c := range clients {
		grp.Go(func() error {
			windows[i] = c.run(k, want, fixedID, begin.Add(during))
			return windows[i].err
		})
	}
	err := grp.Wait()
	elapsed := time.Since(begin)
	var all []time.Duration
	for _, w := range windows {
		all = append(all, w.took...)
	}
	if err == nil && len(all) == 0 {
		err = errors.New("load: no request in this time")
	}
	if err != nil {
		return load{}, err
	}
	slices.Sort(all)
	return load{
		requests: len(all), rate: float64(len(all)) / elapsed.Seconds(),
		p50: all[len(all)/2], p99: all[len(all)*99/100],
	}, nil
}
