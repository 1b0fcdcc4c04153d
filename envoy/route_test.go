package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
)

const body84 = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`

// jsonError checks that the reply is a JSON-RPC error and returns its parts.
func jsonError(t *testing.T, r reply) (id any, code int, message string) {
	t.Helper()
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	var e struct {
		JSONRPC string `json:"jsonrpc"`
		ID      any    `json:"id"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &e), "%q", r.body)
	assert.Equal(t, "2.0", e.JSONRPC)
	return e.ID, e.Error.Code, e.Error.Message
}

func noPrivateHeaders(t *testing.T, s seen) {
	t.Helper()
	for name := range s.header {
		low := strings.ToLower(name)
		assert.False(t, strings.HasPrefix(low, private.HeaderPrefix), name)
		assert.False(t, strings.HasPrefix(low, "x-envoy-"), name)
	}
}

// forged are headers by which a client could try to steer Envoy or us.
var forged = []string{
	"X-Patchbay-Cluster", "beta", "x-patchbay-cluster", "beta", "X-PATCHBAY-Recover", "forged", "x-patchbay-lost", "400", "X-Patchbay-Other", "1",
	"X-Envoy-Upstream-Rq-Timeout-Ms", "1", "X-Envoy-Retry-On", "5xx", "X-Envoy-Max-Retries", "5", "x-envoy-original-path", "/x",
	"X-Envoy-Upstream-Alt-Stat-Name", "x", "X-Envoy-Decorator-Operation", "x", "X-Envoy-Internal", "true", "X-Envoy-Anything", "1", "X-Forwarded-For", "10.0.0.1",
}

func TestDirect(t *testing.T) { // D8
	alpha := newRecorder(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Mcp-Session-Id", "backend's own")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Www-Authenticate", "Bearer")
		w.Header().Set("X-Of-Backend", "kept")
		_, _ = w.Write([]byte("alpha"))
	})
	alpha.Start()
	beta := newRecorder(t, nil, answer(200, "beta"))
	beta.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"), beta.upstream(t, "beta"))

	r := g.do("POST", "/mcp?x=1", []byte(body84), append([]string{"x-test-to", "alpha"}, forged...)...)
	assert.Equal(t, 200, r.status)
	assert.Equal(t, "alpha", r.body)
	for _, h := range mcp.PrivateResponseHeaders {
		assert.Empty(t, r.header.Get(h), h)
	}
	assert.Empty(t, r.header.Get("Server"))
	assert.Equal(t, "kept", r.header.Get("X-Of-Backend"))
	got := alpha.requests()
	require.Len(t, got, 1)
	assert.Equal(t, []string{"/backend/mcp", "backend.test", body84}, []string{got[0].path, got[0].host, string(got[0].body)})
	noPrivateHeaders(t, got[0])
	assert.Empty(t, got[0].header.Get("X-Forwarded-For"))

	// To a request without X-Forwarded-For from such an address Envoy gives the
	// trust of an internal one.
	r = g.do("POST", "/mcp?x=1", []byte(body84), append([]string{"x-test-to", "alpha"}, forged[:len(forged)-2]...)...)
	assert.Equal(t, "alpha", r.body)
	require.Len(t, alpha.requests(), 2)
	noPrivateHeaders(t, alpha.requests()[1])

	// Without a decision of ext_proc the forged header leads nowhere.
	r = g.do("POST", "/mcp", []byte(body84), forged...)
	assert.Equal(t, "broker", r.body)
	r = g.do("GET", "/mcp", nil, forged...)
	assert.Equal(t, "broker", r.body)
	r = g.do("POST", "/elsewhere", []byte(body84), forged...)
	assert.Equal(t, 404, r.status)
	assert.Empty(t, beta.requests())
	require.Len(t, g.broker.requests(), 2)
	for _, s := range g.broker.requests() {
		// This one Envoy sets itself, for the broker.
		assert.Equal(t, []string{"127.0.0.1"}, s.header["X-Envoy-External-Address"])
		s.header.Del("X-Envoy-External-Address")
		noPrivateHeaders(t, s)
	}
}

func TestRecovered(t *testing.T) {
	alpha := newRecorder(t, nil, answer(404, "gone"))
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	large := append([]byte(body84), bytes.Repeat([]byte(" "), 3<<20)...)
	for _, body := range [][]byte{[]byte(body84), large} {
		before := len(g.broker.requests())
		r := g.do("POST", "/mcp", body, append([]string{"x-test-to", "alpha"}, forged...)...)
		assert.Equal(t, 200, r.status)
		assert.Equal(t, "broker", r.body)
		got := g.broker.requests()[before:]
		require.Len(t, got, 1)
		assert.True(t, bytes.Equal(body, got[0].body))
		assert.Equal(t, []string{strings.Repeat("sealed", 40)}, got[0].header[http.CanonicalHeaderKey(private.HeaderRecover)])
		assert.Equal(t, "HTTP/2.0", got[0].proto)
	}
	for _, s := range alpha.requests() {
		noPrivateHeaders(t, s)
	}
}

// Which answers of a backend are retried at the broker depends on how it tells
// of a lost session; redirects and challenges always are.
func TestRecoveredStatuses(t *testing.T) {
	alpha := newRecorder(t, nil, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("x-test-status"))
		w.Header().Set("Location", "http://elsewhere.test/")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("alpha"))
	})
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	for _, tc := range []struct {
		lost      string
		recovered []int
		passed    []int
	}{
		{"", []int{404, 401, 301, 302, 303, 307, 308}, []int{200, 202, 400, 403, 429, 500, 503}},
		{"404", []int{404, 401, 302}, []int{400, 500}},
		{"400", []int{400, 404, 401, 307}, []int{200, 500}},
		{"0", []int{401, 301, 302, 303, 307, 308}, []int{200, 400, 404}},
	} {
		headers := []string{"x-test-to", "alpha", "x-test-lost", tc.lost}
		for _, status := range tc.recovered {
			r := g.do("POST", "/mcp", []byte(body84), append(headers, "x-test-status", strconv.Itoa(status))...)
			assert.Equal(t, "broker", r.body, "lost %q, status %d", tc.lost, status)
			assert.Empty(t, r.header.Get("Location"))
		}
		for _, status := range tc.passed {
			r := g.do("POST", "/mcp", []byte(body84), append(headers, "x-test-status", strconv.Itoa(status))...)
			assert.Equal(t, "alpha", r.body, "lost %q, status %d", tc.lost, status) // G11
			assert.Equal(t, status, r.status)
		}
	}
}

func TestRecoveredAllAtOnce(t *testing.T) {
	const n = 100
	alpha := newRecorder(t, nil, answer(404, "gone"))
	alpha.Start()
	g := newGateway(t).start()
	g.upstreams(alpha.upstream(t, "alpha"))
	// The broker answers when all are there: they are retried at the same time.
	var arrived sync.WaitGroup
	arrived.Add(n)
	g.broker.handle(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Done()
		arrived.Wait()
		_, _ = w.Write([]byte("broker"))
	})
	var eg errgroup.Group
	for range n {
		eg.Go(func() error {
			r, err := g.try("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
			if err == nil && r.body != "broker" {
				err = fmt.Errorf("%d %s", r.status, r.body)
			}
			return err
		})
	}
	require.NoError(t, eg.Wait())
	assert.Len(t, alpha.requests(), n)
	assert.Len(t, g.broker.requests(), n)
}

func TestStreamsPassNoExtProc(t *testing.T) {
	g := newGateway(t).start()
	for _, method := range []string{"GET", "DELETE", "OPTIONS", "PUT", "HEAD"} {
		r := g.do(method, "/mcp", nil, "x-test-to", "alpha")
		assert.Equal(t, 200, r.status, method)
	}
	assert.Len(t, g.broker.requests(), 5)
	assert.Zero(t, g.decider.asked.Load())
	g.do("POST", "/mcp", []byte(body84))
	assert.Equal(t, int64(1), g.decider.asked.Load())
}

func TestOtherPaths(t *testing.T) {
	g := newGateway(t).start()
	for _, path := range []string{"/", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/mcpx", "/mcp/x"} {
		for _, method := range []string{"GET", "POST"} {
			r := g.do(method, path, nil)
			assert.Equal(t, 404, r.status)
			_, code, msg := jsonError(t, r)
			assert.Equal(t, mcp.CodeInvalidRequest, code)
			assert.Contains(t, msg, "/mcp")
		}
	}
	assert.Zero(t, g.decider.asked.Load())
	assert.Empty(t, g.broker.requests())
}
