package broker_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/broker"
	"patchbay.dev/internal/mcptest"
	"patchbay.dev/router"
)

// The broker alone treats pages as Envoy's filter does, streams included.
func TestBrowsers(t *testing.T) {
	const page, foreign = "https://app.example", "https://evil.example"
	g := start(t, options{})
	ts := httptest.NewServer(broker.Browsers(router.Origins{page}, g.broker))
	t.Cleanup(ts.Close)
	c := mcptest.NewClient(t, ts.URL+mcptest.Path)
	a := c.Initialize()
	assert.Empty(t, a.Header.Get("Access-Control-Allow-Origin"), "nobody asked")

	do := func(method, origin string, header ...string) (int, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, c.URL, http.NoBody)
		require.NoError(t, err)
		header = append(header, "Origin", origin, "Mcp-Session-Id", c.Session, "Accept", "text/event-stream")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := c.HTTP.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, resp.Header
	}
	status, h := do(http.MethodOptions, page, "Access-Control-Request-Method", "POST")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, page, h.Get("Access-Control-Allow-Origin"))
	assert.Contains(t, h.Get("Access-Control-Allow-Headers"), "Authorization")
	status, _ = do(http.MethodOptions, page)
	assert.Equal(t, http.StatusMethodNotAllowed, status, "not a preflight request")
	status, h = do(http.MethodGet, page)
	assert.Equal(t, http.StatusOK, status, "the stream has begun, so it was flushed")
	assert.Equal(t, page, h.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "Mcp-Session-Id, WWW-Authenticate", h.Get("Access-Control-Expose-Headers"))
	assert.Equal(t, "Origin", h.Get("Vary"))
	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodDelete} {
		status, h = do(method, foreign, "Access-Control-Request-Method", "POST")
		assert.Equal(t, http.StatusForbidden, status, method)
		assert.Empty(t, h.Get("Access-Control-Allow-Origin"))
	}
	status, _ = do(http.MethodDelete, page)
	assert.Equal(t, http.StatusNoContent, status)
}
