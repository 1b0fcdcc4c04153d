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

	do := func(method, origin string, header ...string) *http.Response {
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
		return resp
	}
	resp := do(http.MethodOptions, page, "Access-Control-Request-Method", "POST")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, page, resp.Header.Get("Access-Control-Allow-Origin"))
	assert.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	resp = do(http.MethodOptions, page)
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "not a preflight request")
	resp = do(http.MethodGet, page)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "the stream has begun, so it was flushed")
	assert.Equal(t, page, resp.Header.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "Mcp-Session-Id, WWW-Authenticate", resp.Header.Get("Access-Control-Expose-Headers"))
	assert.Equal(t, "Origin", resp.Header.Get("Vary"))
	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodDelete} {
		resp = do(method, foreign, "Access-Control-Request-Method", "POST")
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, method)
		assert.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
	}
	resp = do(http.MethodDelete, page)
	assert.Equal(t, http.StatusNoContent, resp.StatusCode)
}
