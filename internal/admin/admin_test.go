package admin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"patchbay.dev/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves the handler on loopback and returns its address.
func start(t *testing.T, h http.Handler) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return l.Addr().String()
}

// get asks address for path, with the Host header if it is not empty.
func get(t *testing.T, address, path, host string) (int, string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	req.Host = host
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func options(ready *atomic.Bool) Options {
	gatherer := prometheus.NewRegistry()
	gatherer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "probe"}, func() float64 { return 1 }))
	return Options{
		Gatherer: gatherer,
		Catalog:  registry.New(slog.New(slog.DiscardHandler)),
		Ready:    func() (bool, string) { return ready.Load(), "2 servers are not yet tried" },
		Hosts:    []string{"Gateway.example"},
		Log:      slog.New(slog.DiscardHandler),
	}
}

func TestPages(t *testing.T) {
	var ready atomic.Bool
	o := options(&ready)
	address := start(t, New(o))

	status, body := get(t, address, "/healthz", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "ok\n", body)

	status, body = get(t, address, "/readyz", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "not ready: 2 servers are not yet tried\n", body)
	ready.Store(true)
	status, _ = get(t, address, "/readyz", "")
	assert.Equal(t, http.StatusOK, status)

	status, body = get(t, address, "/metrics", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "probe 1\n")

	status, body = get(t, address, "/debug/pprof/", "")
	assert.Equal(t, http.StatusNotFound, status)
	assert.Contains(t, body, "/metrics, /healthz, /readyz, /api/v1/servers")

	res, err := http.Post("http://"+address+"/healthz", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusNotFound, res.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

func TestHost(t *testing.T) {
	address := start(t, New(options(new(atomic.Bool))))
	for host, want := range map[string]int{
		"":                             http.StatusOK,
		"localhost":                    http.StatusOK,
		"LOCALHOST:8090":               http.StatusOK,
		"127.0.0.1":                    http.StatusOK,
		"10.1.2.3:8090":                http.StatusOK,
		"[::1]":                        http.StatusOK,
		"[::1]:8090":                   http.StatusOK,
		"gateway.example:8090":         http.StatusOK,
		"evil.example":                 http.StatusForbidden,
		"evil.example:8090":            http.StatusForbidden,
		"127.0.0.1.evil.example":       http.StatusForbidden,
		"localhost.evil.example:8090":  http.StatusForbidden,
		"gateway.example.evil.example": http.StatusForbidden,
	} {
		status, _ := get(t, address, "/healthz", host)
		assert.Equal(t, want, status, "%q", host)
	}
}

func TestLimits(t *testing.T) {
	address := start(t, New(options(new(atomic.Bool))))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	require.NoError(t, err)
	req.Header.Set("X-Large", strings.Repeat("x", 2*maxHeaderBytes))
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, res.StatusCode)
}

// TestStopLetsRequestsFinish stops the server while a request is in it.
func TestStopLetsRequestsFinish(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	inside, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(inside)
			<-release
			text(w, http.StatusOK, "done")
		}))
	}()
	answer := make(chan string, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
	require.NoError(t, err)
	go func() {
		defer close(answer)
		res, err := http.DefaultClient.Do(req)
		if assert.NoError(t, err) {
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			answer <- string(body)
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	<-inside
	cancel()
	require.Eventually(t, func() bool { // the listener closes first
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, stopTimeout/2, stopTimeout/1000)
	close(release)
	assert.Equal(t, "done\n", <-answer)
	require.NoError(t, <-stopped)
}

func TestServeTellsWhyItEnded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, Serve(t.Context(), l, http.NotFoundHandler()), net.ErrClosed)
}
