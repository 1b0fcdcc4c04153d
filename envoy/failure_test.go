package envoy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"patchbay.dev/internal/mcp"
)

// wantID is callID decoded.
const wantID = `a"%b%REQ(:path)%{}`

func TestBackendDead(t *testing.T) {
	alpha := newRecorder(t, nil, answer(200, "alpha"))
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	alpha.Close()

	r := g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
	assert.Equal(t, "broker", r.body)
	require.Len(t, g.broker.requests(), 1)

	g.broker.Close()
	r = g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
	assert.Equal(t, 503, r.status)
	id, code, msg := jsonError(t, r)
	assert.Equal(t, wantID, id)
	assert.Equal(t, mcp.CodeUnavailable, code)
	assert.Equal(t, `server "alpha" is unavailable; the gateway keeps trying to reach it`, msg)

	// The broker's own way has no metadata.
	r = g.do("POST", "/mcp", []byte(body84))
	assert.Equal(t, 503, r.status)
	_, code, msg = jsonError(t, r)
	assert.Equal(t, mcp.CodeInternal, code)
	assert.Equal(t, "the gateway is not available; try again", msg)

	r = g.do("POST", "/mcp", []byte(body84), "x-test-to", "nobody")
	assert.Equal(t, 503, r.status)
	_, code, _ = jsonError(t, r)
	assert.Equal(t, mcp.CodeUnavailable, code)
}

func TestTimeout(t *testing.T) {
	gone := make(chan struct{}, 2)
	alpha := newRecorder(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		gone <- struct{}{}
	})
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	r := g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha", "x-test-timeout", "200")
	assert.Equal(t, 504, r.status)
	id, code, msg := jsonError(t, r)
	assert.Equal(t, wantID, id)
	assert.Equal(t, mcp.CodeTimeout, code)
	assert.Equal(t, `Timeout: server "alpha" did not answer in time`, msg)
	<-gone // the backend sees that its client has gone
	assert.Len(t, alpha.requests(), 1)
	assert.Empty(t, g.broker.requests())
}

// A reset after the request was delivered is not repeated anywhere.
func TestBackendResets(t *testing.T) {
	alpha := newRecorder(t, nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	r := g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
	assert.Equal(t, 503, r.status)
	_, code, _ := jsonError(t, r)
	assert.Equal(t, mcp.CodeUnavailable, code)
	assert.Len(t, alpha.requests(), 1)
	assert.Empty(t, g.broker.requests())
}

func TestExtProcFails(t *testing.T) {
	alpha := newRecorder(t, nil, answer(200, "alpha"))
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	unavailable := func() {
		t.Helper()
		r := g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha", "x-patchbay-cluster", "alpha")
		assert.Equal(t, 503, r.status)
		_, code, msg := jsonError(t, r)
		assert.Equal(t, mcp.CodeInternal, code)
		assert.Equal(t, "the gateway is not available; try again", msg)
	}
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable, codes.ResourceExhausted} {
		g.decider.set(func(map[string]string, []byte) verdict { return verdict{abort: status.Error(code, "no")} })
		unavailable()
	}
	g.decider.server.Stop() // dead
	unavailable()
	frozen := g.socket("extproc") // connected to, but nobody reads
	start := time.Now()
	unavailable()
	assert.Less(t, time.Since(start), 5*time.Second)
	require.NoError(t, frozen.Close())
	assert.Empty(t, alpha.requests())
	assert.Empty(t, g.broker.requests())
	g.decider = startDecider(t, g.socket("extproc")) // back
	require.Eventually(t, func() bool {
		return g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha").body == "alpha"
	}, 5*time.Second, 50*time.Millisecond)
}

// An ext_proc that ends its stream with OK lets the request go on as it is
// (Envoy's documented behaviour): it must not lead to a backend.
func TestExtProcEndsWithOK(t *testing.T) {
	alpha := newRecorder(t, nil, answer(200, "alpha"))
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	g.decider.set(func(map[string]string, []byte) verdict { return verdict{hangUp: true} })
	r := g.do("POST", "/mcp", []byte(body84), "x-test-to", "alpha", "x-patchbay-cluster", "alpha")
	assert.Equal(t, "broker", r.body)
	assert.Empty(t, alpha.requests())
}

// What ext_proc answers is left alone, whatever its status.
func TestImmediateReplies(t *testing.T) {
	g := newGateway(t).start()
	for _, code := range []int{200, 202, 400, 404, 413, 503} {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"100%% of ext_proc"}}`, code)
		g.decider.set(func(map[string]string, []byte) verdict { return verdict{reply: code, replyTxt: text} })
		r := g.do("POST", "/mcp", []byte(body84))
		assert.Equal(t, code, r.status)
		assert.Equal(t, text, r.body)
		assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	}
	assert.Empty(t, g.broker.requests())
}

func TestRefusedRequests(t *testing.T) {
	g := newGateway(t)
	g.config.RequestTimeout = time.Second
	g.start()
	many := strings.Repeat("a: b\r\n", 120)
	long := "a: " + strings.Repeat("b", 70<<10) + "\r\n"
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"not HTTP":          {"hello\r\n\r\n", 400},
		"underscore":        {"POST /mcp HTTP/1.1\r\nHost: x\r\na_b: c\r\nContent-Length: 0\r\n\r\n", 400},
		"escaped slash":     {"POST /%2fmcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400},
		"too many headers":  {"POST /mcp HTTP/1.1\r\nHost: x\r\n" + many + "Content-Length: 0\r\n\r\n", 431},
		"too large headers": {"POST /mcp HTTP/1.1\r\nHost: x\r\n" + long + "Content-Length: 0\r\n\r\n", 431},
		"both lengths":      {"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"upgrade":           {"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 403},
		"slow upload":       {"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345", 408},
		"old HTTP":          {"POST /mcp HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 426},
	} {
		t.Run(name, func(t *testing.T) {
			r := raw(t, g.listen, tc.request)
			assert.Equal(t, tc.status, r.status)
			_, code, msg := jsonError(t, r)
			assert.Equal(t, mcp.CodeInvalidRequest, code)
			assert.NotEmpty(t, msg)
		})
	}
	assert.Empty(t, g.broker.requests())
}

// raw sends bytes as they are and reads one response.
func raw(t *testing.T, address, request string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// The limit on how long a request may take to arrive does not end its response.
func TestResponseOutlivesRequestTimeout(t *testing.T) {
	release := make(chan struct{})
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": first\n\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "data: last\n\n")
	}
	alpha := newRecorder(t, nil, stream)
	alpha.Start()
	g := newGateway(t)
	g.config.RequestTimeout = 300 * time.Millisecond
	g.broker.handle(stream)
	g.start()
	g.upstreams(alpha.upstream(t, "alpha"))
	const whole = ": first\n\ndata: last\n\n"
	want := func(method string, headers ...string) func() error {
		return func() error {
			r, err := g.try(method, "/mcp", []byte(body84), headers...)
			if err == nil && r.body != whole {
				err = fmt.Errorf("%s: %q", method, r.body)
			}
			return err
		}
	}
	var eg errgroup.Group
	eg.Go(want("POST", "x-test-to", "alpha"))
	eg.Go(want("GET"))
	time.AfterFunc(time.Second, func() { close(release) }) // the time is what is tested
	require.NoError(t, eg.Wait())
}
