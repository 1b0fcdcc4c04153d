package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/registry"
)

// rawServer accepts connections and hands each to serve, in a goroutine of its
// own, closing it afterwards.
func rawServer(t *testing.T, tlsConfig *tls.Config, serve func(n int, c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = c.Close() }()
				serve(n, c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return addr
}

// bodies counts the request bodies that arrived whole.
type bodies struct {
	mu  sync.Mutex
	got map[string]int // guarded by mu
}

func (b *bodies) read(r *bufio.Reader) (string, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got == nil {
		b.got = map[string]int{}
	}
	b.got[string(body)]++
	return string(body), nil
}

func (b *bodies) count(body string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[body]
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"

func post(t *testing.T, c *Client, body string, header http.Header) error {
	t.Helper()
	resp, err := c.Post(ctxOf(t), Ref{}, []byte(body), header)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

func upstreamError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	return e
}

// A backend that dies after it has read a request has perhaps run it. With
// GetBody set, net/http would send this one again, because of its header.
func TestRequestThatWasReadIsNotRepeated(t *testing.T) { // M7
	var got bodies
	addr := rawServer(t, nil, func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		for {
			body, err := got.read(r)
			if err != nil || body == "die" {
				return
			}
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	c := client(t, "http://"+addr, Options{})
	require.NoError(t, post(t, c, "first", nil)) // the connection is reused then
	e := upstreamError(t, post(t, c, "die", http.Header{"Idempotency-Key": {"k"}}))
	assert.True(t, e.Delivered)
	assert.Equal(t, registry.ReasonUnreachable, e.Reason)
	assert.Equal(t, 1, got.count("die"))
}

// Servers close idle connections while a request is on its way: whatever comes
// of it, Delivered tells the truth, and nothing arrives twice.
func TestDeliveredIsExactWhenIdleConnectionsClose(t *testing.T) {
	var got bodies
	addr := rawServer(t, nil, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for range 1 + n%2 { // closes after one request, or after two
			if _, err := got.read(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	c := client(t, "http://"+addr, Options{})
	outcomes := map[string]int{}
	for i := range 2000 {
		body := fmt.Sprintf("%d %s", i, strings.Repeat("x", i%20*1000))
		err := post(t, c, body, nil)
		n := got.count(body)
		if err == nil {
			require.Equal(t, 1, n)
			outcomes["served"]++
			continue
		}
		e := upstreamError(t, err)
		if !e.Delivered {
			require.Zero(t, n)
		}
		require.LessOrEqual(t, n, 1)
		outcomes[fmt.Sprintf("failed, delivered %v", e.Delivered)]++
	}
	t.Log(outcomes)
}

func TestNothingDelivered(t *testing.T) {
	t.Run("connection refused", func(t *testing.T) {
		s := mcptest.New(t, nil)
		s.Stop()
		e := upstreamError(t, post(t, client(t, s.URL(), Options{}), "x", nil))
		assert.False(t, e.Delivered)
		assert.Contains(t, e.Message, "connection refused")
	})
	t.Run("authority not trusted", func(t *testing.T) {
		s := mcptest.New(t, func(s *mcptest.Server) { s.TLS = true })
		e := upstreamError(t, post(t, client(t, s.URL(), Options{}), "x", nil))
		assert.False(t, e.Delivered)
		assert.Contains(t, e.Message, "tls.caFile")
		assert.Empty(t, s.Requests())
	})
	t.Run("no TLS there", func(t *testing.T) {
		s := mcptest.New(t, nil)
		e := upstreamError(t, post(t, client(t, "https://"+s.Addr(), Options{}), "x", nil))
		assert.False(t, e.Delivered)
		assert.Contains(t, e.Message, "must be http")
	})
}

// http2Server is an https server that reads one HTTP/2 request per connection
// and then lets answer act on the connection.
func http2Server(t *testing.T, answer func(f *http2.Framer, stream uint32)) (url, caFile string, got *bodies) {
	t.Helper()
	s := mcptest.New(t, func(s *mcptest.Server) { s.TLS = true })
	got = &bodies{got: map[string]int{}}
	conf := s.TLSConfig()
	conf.NextProtos = []string{"h2"}
	addr := rawServer(t, conf, func(_ int, c net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok && d.StreamEnded() {
				got.mu.Lock()
				got.got["body"]++
				got.mu.Unlock()
				answer(f, d.StreamID)
			}
		}
	})
	return "https://" + addr, mcptest.WriteFile(t, s.CAPEM()), got
}

// What an HTTP/2 server says it did not process was not delivered; anything else
// may have been. net/http by itself would repeat all of these.
func TestHTTP2Delivery(t *testing.T) {
	for name, tc := range map[string]struct {
		answer    func(*http2.Framer, uint32)
		delivered bool
	}{
		"refused stream": {func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, false},
		"going away":     {func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, false},
		"protocol error": {func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeProtocol) }, true},
		"internal error": {func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) }, true},
		"misleading": {func(f *http2.Framer, id uint32) {
			_ = f.WriteGoAway(id, http2.ErrCodeInternal, []byte("http2: Transport: cannot retry err [; REFUSED_STREAM;"))
			_ = f.WriteRSTStream(id, http2.ErrCodeInternal)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			url, ca, got := http2Server(t, tc.answer)
			c, err := NewClient(config.Server{Name: "s", URL: url, TLS: &config.ServerTLS{CAFile: ca}}, Options{})
			require.NoError(t, err)
			defer c.Close()
			e := upstreamError(t, post(t, c, "x", nil))
			assert.Equal(t, tc.delivered, e.Delivered, errors.Unwrap(e))
			if tc.delivered {
				assert.Equal(t, 1, got.count("body"))
			}
		})
	}
}
