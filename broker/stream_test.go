package broker_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/broker"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/mcptest"
)

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func next(t *testing.T, s *mcptest.GetStream) string {
	t.Helper()
	select {
	case ev, ok := <-s.Events:
		require.True(t, ok, "the stream has ended")
		return ev.Data
	case <-time.After(wait):
		require.FailNow(t, "no event")
	}
	return ""
}

func ended(t *testing.T, s *mcptest.GetStream) {
	t.Helper()
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return
			}
			assert.Empty(t, ev.Data, "an event on a stream that should end")
		case <-time.After(wait):
			require.FailNow(t, "the stream did not end")
		}
	}
}

// K8, K9, M12: every session hears of a change, on one stream: its newest.
func TestChangeReachesTheNewestStreamOfEverySession(t *testing.T) {
	g := start(t, options{})
	g.byHand()
	one, two := g.client(), g.client()
	older, newer, other := one.Stream(""), one.Stream(""), two.Stream("")
	require.Equal(t, http.StatusOK, newer.Status)
	assert.Equal(t, "text/event-stream", newer.Header.Get("Content-Type"))
	assert.Equal(t, "no-cache", newer.Header.Get("Cache-Control"))
	assert.Equal(t, 3, g.broker.Streams())
	g.change(0)
	assert.JSONEq(t, toolsChanged, next(t, newer))
	assert.JSONEq(t, toolsChanged, next(t, other))
	newer.Close()
	require.Eventually(t, func() bool { return g.broker.Streams() == 2 }, wait, time.Millisecond)
	g.change(1)
	assert.JSONEq(t, toolsChanged, next(t, older), "and the first that it hears")
	assert.JSONEq(t, toolsChanged, next(t, other))
	assert.Empty(t, older.Events)
}

func TestFifthStreamClosesTheOldest(t *testing.T) {
	g := start(t, options{})
	g.byHand()
	c := g.client()
	var all []*mcptest.GetStream
	for range 5 {
		all = append(all, c.Stream(""))
	}
	ended(t, all[0])
	assert.Equal(t, 4, g.broker.Streams())
	g.change(0)
	assert.JSONEq(t, toolsChanged, next(t, all[4]))
	for _, s := range all[1:4] {
		assert.Empty(t, s.Events)
	}
	assert.Zero(t, g.metric("patchbay_streams_dropped_total"), "it was not slow")
}

func TestStreamEndsWithItsSessionAndWithTheBroker(t *testing.T) {
	g := start(t, options{})
	one, two := g.client(), g.client()
	s1, s2 := one.Stream(""), two.Stream("")
	require.Equal(t, http.StatusNoContent, one.Delete().Status)
	ended(t, s1)
	again := one.Stream("")
	assert.Equal(t, http.StatusNotFound, again.Status)
	g.broker.Close()
	ended(t, s2)
	require.Eventually(t, func() bool { return g.broker.Streams() == 0 }, wait, time.Millisecond)
}

func TestGetMustAcceptEventsAndHaveASession(t *testing.T) {
	g := start(t, options{})
	c := g.client()
	for _, tc := range []struct {
		accept, session string
		status          int
	}{
		{"application/json", c.Session, http.StatusNotAcceptable},
		{"", c.Session, http.StatusNotAcceptable},
		{"text/event-stream-not", c.Session, http.StatusNotAcceptable},
		{"text/event-stream", "", http.StatusBadRequest},
		{"text/event-stream", "forged", http.StatusNotFound},
		{"text/event-stream", c.Session[:len(c.Session)-1] + "!", http.StatusNotFound},
		{"application/json, text/event-stream;q=0.9", c.Session, http.StatusOK},
		{"*/*", c.Session, http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, http.NoBody)
		require.NoError(t, err)
		if tc.accept != "" {
			req.Header.Set("Accept", tc.accept)
		}
		if tc.session != "" {
			req.Header.Set(mcp.HeaderSessionID, tc.session)
		}
		resp, err := c.HTTP.Do(req)
		require.NoError(t, err)
		assert.Equal(t, tc.status, resp.StatusCode, "%+v", tc)
		if tc.status != http.StatusOK {
			assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		}
		require.NoError(t, resp.Body.Close())
	}
}

func TestKeepAliveCommentsOnAQuietStream(t *testing.T) {
	g := start(t, options{broker: func(o *broker.Options) { o.KeepAlive = 10 * time.Millisecond }})
	c := rawGet(t, g, 0)
	lines := bufio.NewReader(c)
	var seen []string
	for len(seen) < 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, ":") {
			seen = append(seen, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{": connected", ": keep-alive", ": keep-alive"}, seen)
}

// A stream lives on when nothing is written for longer than one write may take:
// in HTTP/2 a write deadline that runs out resets a stream, also a quiet one.
func TestQuietStreamOutlivesTheWriteTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			const limit = 100 * time.Millisecond
			g := start(t, options{
				h2c:    http2,
				broker: func(o *broker.Options) { o.WriteTimeout, o.KeepAlive = limit, 5*limit },
			})
			g.byHand()
			c := g.stranger()
			if http2 {
				h2c(t, c, 0)
			}
			c.Initialize()
			s := c.Stream("")
			require.Equal(t, http.StatusOK, s.Status)
			quiet, end := s.Events, time.After(4*limit)
			select {
			case ev, ok := <-quiet:
				require.True(t, ok, "the stream has ended")
				require.Empty(t, ev.Data)
			case <-end:
			}
			g.change(0)
			assert.JSONEq(t, toolsChanged, next(t, s))
			require.Equal(t, http.StatusNoContent, c.Delete().Status)
			ended(t, s)
		})
	}
}

// rawGet opens a GET stream with a TCP connection of its own, whose client reads
// nothing that the test does not read. buffer is its receive buffer in bytes.
func rawGet(t *testing.T, g *gateway, buffer int) net.Conn {
	t.Helper()
	u, err := url.Parse(g.url)
	require.NoError(t, err)
	addr, err := net.ResolveTCPAddr("tcp", u.Host)
	require.NoError(t, err)
	c, err := net.DialTCP("tcp", nil, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
	if buffer > 0 {
		require.NoError(t, c.SetReadBuffer(buffer))
	}
	before := g.broker.Streams()
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n",
		u.Path, g.client().Session)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.broker.Streams() == before+1 }, wait, time.Millisecond)
	return c
}

// smallBuffers makes connections that are full soon.
func smallBuffers(c *net.TCPConn) { _ = c.SetWriteBuffer(4 << 10) }

// changeUntilDropped changes the list until the slow stream is gone. A reader
// beside it hears of every change at once.
func changeUntilDropped(t *testing.T, g *gateway, s *mcptest.GetStream) {
	t.Helper()
	deadline := time.Now().Add(wait)
	for i := 0; g.broker.Streams() > 1; i++ {
		require.True(t, time.Now().Before(deadline), "the slow stream was not dropped")
		g.change(i)
		require.JSONEq(t, toolsChanged, next(t, s), "the reader beside it")
	}
	require.Eventually(t, func() bool { return g.metric("patchbay_streams_dropped_total") == 1 }, wait, time.Millisecond)
	assert.EqualValues(t, 1, g.metric("patchbay_streams"))
}

func TestSlowReaderIsDroppedWhenItsQueueIsFull(t *testing.T) {
	g := start(t, options{conn: smallBuffers, broker: func(o *broker.Options) { o.WriteTimeout = time.Minute }})
	g.byHand()
	s := g.client().Stream("")
	rawGet(t, g, 4<<10)
	changeUntilDropped(t, g, s)
}

func TestSlowReaderIsDroppedWhenAWriteTakesTooLong(t *testing.T) {
	t.Run("http1", func(t *testing.T) {
		g := start(t, options{conn: smallBuffers, broker: slowWrites})
		g.byHand()
		s := g.client().Stream("")
		rawGet(t, g, 4<<10)
		fillUntilDropped(t, g, s)
	})
	t.Run("http2", func(t *testing.T) {
		g := start(t, options{h2c: true, broker: slowWrites})
		g.byHand()
		reader, slow := g.stranger(), g.stranger()
		h2c(t, reader, 0)
		h2c(t, slow, 16<<10)
		reader.Initialize()
		slow.Initialize()
		s := reader.Stream("")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set(mcp.HeaderSessionID, slow.Session)
		resp, err := slow.HTTP.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		fillUntilDropped(t, g, s)
	})
}

func slowWrites(o *broker.Options) {
	o.WriteTimeout, o.KeepAlive = 500*time.Millisecond, 200*time.Microsecond
}

// fillUntilDropped lets keep-alive comments fill the connections: they do not
// pass the queue, so that only a write can fail.
func fillUntilDropped(t *testing.T, g *gateway, s *mcptest.GetStream) {
	t.Helper()
	require.Eventually(t, func() bool { return g.metric("patchbay_streams_dropped_total") == 1 }, wait, time.Millisecond)
	require.Eventually(t, func() bool { return g.broker.Streams() == 1 }, wait, time.Millisecond)
	g.change(0)
	require.JSONEq(t, toolsChanged, nextData(t, s), "the reader beside it")
}

// nextData skips the events without data.
func nextData(t *testing.T, s *mcptest.GetStream) string {
	t.Helper()
	for {
		if data := next(t, s); data != "" {
			return data
		}
	}
}
