package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"patchbay.dev/internal/config"
)

// httpsBackend serves with a certificate of ca for names.
func httpsBackend(t *testing.T, ca *authority, h2 bool, names ...string) *recorder {
	t.Helper()
	r := newRecorder(t, nil, answer(200, "alpha"))
	r.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, names...)}, MinVersion: tls.VersionTLS12}
	r.EnableHTTP2 = h2
	r.Config.Protocols.SetHTTP2(h2)
	r.Config.ErrorLog = discardLog
	r.StartTLS()
	return r
}

func TestHTTPSBackends(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	trust := func(name string) *config.ServerTLS { return &config.ServerTLS{CAFile: ca.file(t), ServerName: name} }
	g := newGateway(t).start()
	for name, tc := range map[string]struct {
		backend *recorder
		host    string // in the URL, for which the backend's address stands
		tls     *config.ServerTLS
		proto   string // "" when the backend must not be spoken to
	}{
		"h2":             {httpsBackend(t, ca, true, "localhost"), "localhost", trust(""), "HTTP/2.0"},
		"http1":          {httpsBackend(t, ca, false, "localhost"), "localhost", trust(""), "HTTP/1.1"},
		"address":        {httpsBackend(t, ca, true, "127.0.0.1"), "127.0.0.1", trust(""), "HTTP/2.0"},
		"server name":    {httpsBackend(t, ca, true, "mcp.test"), "127.0.0.1", trust("mcp.test"), "HTTP/2.0"},
		"wildcard":       {httpsBackend(t, ca, true, "*.mcp.test"), "127.0.0.1", trust("a.mcp.test"), "HTTP/2.0"},
		"wrong CA":       {httpsBackend(t, other, true, "localhost"), "localhost", trust(""), ""},
		"wrong name":     {httpsBackend(t, ca, true, "other.test"), "localhost", trust(""), ""},
		"wrong address":  {httpsBackend(t, ca, true, "127.0.0.2"), "127.0.0.1", trust(""), ""},
		"system CA only": {httpsBackend(t, ca, true, "localhost"), "localhost", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := url.Parse(tc.backend.URL)
			require.NoError(t, err)
			at.Host = tc.host + ":" + at.Port()
			g.upstreams(Upstream{Cluster: "alpha", URL: at, TLS: tc.tls})
			r := g.to(tc.backend.Listener.Addr().String())
			if tc.proto == "" {
				assert.Equal(t, "broker", r.body) // recovery tells what is wrong
				assert.Empty(t, tc.backend.requests())
				return
			}
			assert.Equal(t, "alpha", r.body)
			require.Len(t, tc.backend.requests(), 1)
			assert.Equal(t, tc.proto, tc.backend.requests()[0].proto)
		})
	}
}

// The members of the cluster speak different protocols: TLS with ALPN, and h2c.
func TestHTTPSRecovered(t *testing.T) {
	ca := newAuthority(t)
	alpha := httpsBackend(t, ca, true, "localhost")
	alpha.handle(answer(404, "gone"))
	g := newGateway(t).start()
	u := alpha.upstream(t, "alpha")
	u.TLS = &config.ServerTLS{CAFile: ca.file(t), ServerName: "localhost"}
	g.upstreams(u)
	var eg errgroup.Group
	for range 20 {
		eg.Go(func() error {
			r, err := g.try("POST", "/mcp", []byte(body84), "x-test-to", "alpha")
			if err == nil && r.body != "broker" {
				err = fmt.Errorf("%d %s", r.status, r.body)
			}
			return err
		})
	}
	require.NoError(t, eg.Wait())
	for _, s := range g.broker.requests() {
		assert.Equal(t, "HTTP/2.0", s.proto)
	}
}

func TestListenerTLS(t *testing.T) {
	ca := newAuthority(t)
	cert, key := writeCertificate(t, ca, "localhost", "127.0.0.1")
	g := newGateway(t)
	g.config.TLS = &config.ListenerTLS{CertFile: cert, KeyFile: key}
	g.start()
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	for _, h2 := range []bool{true, false} {
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: h2,
		}
		client := &http.Client{Transport: transport}
		resp, err := client.Get("https://" + g.listen + "/mcp")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, map[bool]int{true: 2, false: 1}[h2], resp.ProtoMajor)
		client.CloseIdleConnections()
	}
	old := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} // that it is refused is tested
	_, err := tls.Dial("tcp", g.listen, old)
	assert.Error(t, err)
}

func TestSystemCA(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "/some/bundle.pem")
	path, err := systemCA()
	require.NoError(t, err)
	assert.Equal(t, "/some/bundle.pem", path)
}

func TestUpstreamRefused(t *testing.T) {
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		require.NoError(t, err)
		return u
	}
	good := Upstream{Cluster: "good", URL: parse("http://127.0.0.1:1/mcp")}
	for name, tc := range map[string]struct {
		u    Upstream
		want string
	}{
		"scheme":    {Upstream{Cluster: "a", URL: parse("ftp://user:secret@x/")}, "expected http or https"},
		"host":      {Upstream{Cluster: "a", URL: parse("http:///mcp")}, "names no host"},
		"CA file":   {Upstream{Cluster: "a", URL: parse("https://x/"), TLS: &config.ServerTLS{CAFile: filepath.Join(t.TempDir(), "none")}}, "tls.caFile"},
		"no name":   {Upstream{URL: parse("http://x/")}, "the name is taken or not allowed"},
		"same name": {good, `cluster "good": the name is taken`},
	} {
		t.Run(name, func(t *testing.T) {
			x := NewXDS(nil, nil)
			defer x.Close()
			err := x.SetUpstreams([]Upstream{good, tc.u})
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "secret")
			assert.Contains(t, x.clusters.GetResources(), "good") // the others are set
		})
	}
}
