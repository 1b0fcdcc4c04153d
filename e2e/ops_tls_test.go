package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// certificate makes a certificate for 127.0.0.1 that is its own authority, PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: t.Name()},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// The endpoint with a certificate speaks https, by choice of the client
// HTTP/1.1 or HTTP/2, and nothing else.
func TestOpsListenerTLS(t *testing.T) {
	cert, key := certificate(t)
	fake := mcptest.New(t, nil)
	g := upWith(t, fmt.Sprintf("tls: {certFile: %s, keyFile: %s}\n", mcptest.WriteFile(t, cert), mcptest.WriteFile(t, key)), entry("s", fake))
	url := "https://" + g.addr() + "/mcp"
	assert.Contains(t, g.out.String(), url)
	for _, h2 := range []bool{true, false} {
		c := mcptest.NewClient(t, url)
		require.NoError(t, c.Trust(cert))
		tr, ok := c.HTTP.Transport.(*http.Transport)
		require.True(t, ok)
		want := "HTTP/2.0"
		if !h2 {
			tr.Protocols = new(http.Protocols)
			tr.Protocols.SetHTTP1(true)
			tr.ForceAttemptHTTP2, want = false, "HTTP/1.1"
		}
		seen := &protoOf{next: tr}
		c.HTTP.Transport = seen
		c.Initialize()
		for range 2 {
			require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
		}
		assert.Equal(t, want, seen.last)
	}
	plain := mcptest.NewClient(t, g.URL()).Call("ping", "")
	assert.NotEqual(t, http.StatusOK, plain.Status, plain.String())
	assert.Nil(t, plain.Result())
	other, _ := certificate(t)
	stranger := mcptest.NewClient(t, url)
	require.NoError(t, stranger.Trust(other))
	require.ErrorContains(t, stranger.Call("ping", "").Err, "x509")
}

// protoOf notes the protocol of the last response. It is used by one goroutine.
type protoOf struct {
	next http.RoundTripper
	last string
}

func (p *protoOf) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err == nil {
		p.last = resp.Proto
	}
	return resp, err
}

// An https server is verified on both ways, against the given authority; calls
// reach it directly, by HTTP/2 where it offers that.
func TestOpsServerTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			fake := mcptest.New(t, func(s *mcptest.Server) { s.TLS, s.H2 = true, h2 })
			g := up(t, entry("s", fake, "tls: {caFile: "+mcptest.WriteFile(t, fake.CAPEM())+"}"))
			c := g.client()
			for range 3 {
				a := c.CallTool("s_echo", `{}`)
				require.Equal(t, http.StatusOK, a.Status, a.String())
			}
			assert.InDelta(t, 2, g.calls("direct"), 0)
			want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]
			for _, r := range fake.Method("tools/call") {
				assert.Equal(t, want, r.Proto)
				assert.Equal(t, fake.Addr(), r.Host)
			}
			fake.Forget()
			require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
			assert.InDelta(t, 1, g.calls("recovered"), 0)
		})
	}
}

// A server whose certificate is another's gets nothing, and the operator is told
// why.
func TestOpsServerTLSRefused(t *testing.T) {
	other, _ := certificate(t)
	fake := mcptest.New(t, func(s *mcptest.Server) { s.TLS = true })
	ca, wrong := mcptest.WriteFile(t, fake.CAPEM()), mcptest.WriteFile(t, other)
	for name, tc := range map[string]struct{ tls, says string }{
		"authority": {"tls: {caFile: " + wrong + "}", "signed by an authority that is not trusted: set tls.caFile"},
		"system":    {"labels: {}", "signed by an authority that is not trusted: set tls.caFile"},
		"name":      {"tls: {caFile: " + ca + ", serverName: other.example.org}", "for another host name: check its url or set tls.serverName"},
	} {
		t.Run(name, func(t *testing.T) {
			fake.ResetRequests()
			g := up(t, entry("s", fake, tc.tls))
			assert.Regexp(t, `s +unavailable +0 .*`+tc.says, g.out.String())
			c := g.client()
			assert.Empty(t, toolNames(t, c))
			assert.NotZero(t, c.CallTool("s_echo", `{}`).Code())
			assert.InDelta(t, 1, g.metric("patchbay_servers", `state="unavailable"`), 0)
			assert.Empty(t, fake.Requests(), "nothing was sent")
		})
	}
}

// Envoy verifies for itself: a server that comes back with the certificate of
// somebody else gets no call.
func TestOpsServerTLSChanges(t *testing.T) {
	// Without a stream the watcher does not notice at once, and calls still go
	// the direct way.
	fake := mcptest.New(t, func(s *mcptest.Server) { s.TLS, s.Stream = true, false })
	g := up(t, entry("s", fake, "tls: {caFile: "+mcptest.WriteFile(t, fake.CAPEM())+"}"))
	c := g.client()
	for range 2 {
		require.Equal(t, http.StatusOK, c.CallTool("s_echo", `{}`).Status)
	}
	fake.Stop()
	fake.ResetRequests()
	l, err := net.Listen("tcp", fake.Addr())
	require.NoError(t, err)
	cert, key := certificate(t)
	impostor := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), // of refused handshakes
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request reached the impostor") }),
	}
	certFile, keyFile := mcptest.WriteFile(t, cert), mcptest.WriteFile(t, key)
	go func() { _ = impostor.ServeTLS(l, certFile, keyFile) }()
	t.Cleanup(func() { _ = impostor.Close() })
	a := c.CallTool("s_echo", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.Status, a.String())
	assert.InDelta(t, 2, g.calls("direct"), 0, "it was Envoy that refused")
}
