package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"patchbay.dev/internal/config"
)

// systemBundles is where systems keep their trusted authorities, as
// crypto/x509 looks for them (Debian, Fedora, SUSE, older RHEL, newer RHEL,
// Alpine and macOS).
var systemBundles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// errNoSystemCA is returned for an https server without a CA file on a system
// without any.
var errNoSystemCA = errors.New("no certificate authorities on this system: install ca-certificates, set SSL_CERT_FILE, or set tls.caFile of the server")

// systemCA is the system's CA bundle; SSL_CERT_FILE wins, as in Go.
func systemCA() (string, error) {
	if path := os.Getenv("SSL_CERT_FILE"); path != "" {
		return path, nil
	}
	for _, path := range systemBundles {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return path, nil
		}
	}
	return "", errNoSystemCA
}

// upstreamTLS verifies the server: a chain to the given or the system's
// authorities, and the expected name in the certificate.
func upstreamTLS(host string, t *config.ServerTLS) (*corev3.TransportSocket, error) {
	if t == nil {
		t = &config.ServerTLS{}
	}
	ca, err := trustedCA(t.CAFile)
	if err != nil {
		return nil, err
	}
	name := host
	if t.ServerName != "" {
		name = t.ServerName
	}
	san := &tlsv3.SubjectAltNameMatcher{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
	}
	sni := name
	if ip, err := netip.ParseAddr(name); err == nil {
		// RFC 6066, section 3: no addresses in SNI.
		sni = ""
		san.SanType = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		san.Matcher.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: ip.String()}
	}
	return tlsSocket(&tlsv3.UpstreamTlsContext{
		Sni: sni,
		CommonTlsContext: &tlsv3.CommonTlsContext{
			// ALPN comes from the cluster's protocols (auto_config).
			TlsParams: &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa:                 ca,
				MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{san},
			}},
		},
	})
}

// trustedCA is the CA file's content, so that Envoy need not be able to read it
// and a changed file is a changed cluster; the system's bundle, which is large
// and the same for all, is named.
func trustedCA(file string) (*corev3.DataSource, error) {
	if file == "" {
		path, err := systemCA()
		if err != nil {
			return nil, err
		}
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tls.caFile: %w", err)
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: string(pem)}}, nil
}

// listenerTLS is the endpoint's certificate.
func listenerTLS(t *config.ListenerTLS) (*corev3.TransportSocket, error) {
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("tls: both certFile and keyFile are needed")
	}
	return tlsSocket(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsParams:     &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
		AlpnProtocols: []string{"h2", "http/1.1"},
		TlsCertificates: []*tlsv3.TlsCertificate{{
			CertificateChain: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.CertFile}},
			PrivateKey:       &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.KeyFile}},
		}},
	}})
}

func tlsSocket(ctx checked) (*corev3.TransportSocket, error) {
	c, err := pack(ctx)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: c},
	}, nil
}
