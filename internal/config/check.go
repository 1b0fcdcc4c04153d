package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Bounds of values.
const (
	minBodyLimit   = 1 << 10
	maxBodyLimit   = 64 << 20
	maxPageSize    = 10_000
	maxOrigins     = 64
	maxServerName  = 40
	maxPrefix      = 64
	maxURL         = 2048
	maxHeaders     = 64
	maxHeaderValue = 8 << 10
	minPoll        = time.Second
)

var (
	serverName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	// webOrigin is RFC 6454, section 6.2, with "*" for any port. Extensions of
	// browsers and editors have schemes of their own.
	webOrigin  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:([0-9]{1,5}|\*))?$`)
	toolPrefix = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)
)

// check finds the values that no type excludes, fills in what depends on other
// values, and makes paths absolute. paths[i] is where c.Servers[i] is in the
// file.
func (p *problems) check(c *Config, paths []string, env Env) {
	p.checkFiles(c)
	c.Listen = p.checkAddress("listen", c.Listen)
	c.Admin = p.checkAddress("admin", c.Admin)
	if c.Listen == c.Admin && !strings.HasSuffix(c.Admin, ":0") {
		p.errorf("admin", "expected another address than that of listen")
	}
	if c.BodyLimit < minBodyLimit || c.BodyLimit > maxBodyLimit {
		p.errorf("bodyLimit", "expected a size from 1KiB to 64MiB")
	}
	if c.PageSize < 0 || c.PageSize > maxPageSize {
		p.errorf("pageSize", "expected a number from 0 to %d", maxPageSize)
	}
	p.checkOrigins(c.Origins)
	if c.Sessions.Store != "memory" {
		p.errorf("sessions.store", `expected "memory", got %s`, show(c.Sessions.Store))
	}
	if c.Sessions.Lifetime == 0 {
		p.errorf("sessions.lifetime", "expected a duration above 0")
	}
	if c.Sessions.IdleTimeout == 0 {
		p.errorf("sessions.idleTimeout", "expected a duration above 0")
	}
	if len(c.VirtualServers) > 0 {
		p.warnf("virtualServers", "virtualServers has no effect yet")
	}
	if len(c.Servers) == 0 {
		p.warnf("servers", "there is no server")
	}
	names := map[string]string{}
	for i := range c.Servers {
		s, path := &c.Servers[i], paths[i]
		p.checkServer(s, path, env)
		if first, taken := names[s.Name]; taken && s.Name != "" {
			where := join(path, "name")
			if !p.has(where) { // mcpServers: the name is the key
				where = path
			}
			p.errorf(where, "expected a name of its own: %s is already called %s", first, show(s.Name))
		} else {
			names[s.Name] = path
		}
	}
}

// checkOrigins: an origin that no browser sends in this form would let nobody
// in, without a word.
func (p *problems) checkOrigins(origins []string) {
	if len(origins) > maxOrigins {
		p.errorf("origins", "expected at most %d origins", maxOrigins)
	}
	for i, o := range origins {
		if o != "*" && !webOrigin.MatchString(o) {
			p.errorf(fmt.Sprintf("origins[%d]", i),
				`expected an origin in lower case and without a path, such as "https://app.example", or "*", got %s`, show(o))
		}
	}
}

// checkFiles makes the paths absolute and reads the certificate.
func (p *problems) checkFiles(c *Config) {
	if c.StateDir == "" {
		p.errorf("stateDir", noStateDir)
	}
	c.StateDir = p.absolute(c.StateDir)
	if c.Calls.Log != "" && c.Calls.Log != "-" {
		c.Calls.Log = p.absolute(c.Calls.Log)
	}
	if !filepath.IsAbs(c.Sessions.KeyFile) {
		c.Sessions.KeyFile = filepath.Join(c.StateDir, c.Sessions.KeyFile)
	}
	if c.TLS == nil || c.TLS.CertFile == "" || c.TLS.KeyFile == "" {
		if c.TLS != nil && p.has("tls.certFile") && p.has("tls.keyFile") {
			p.errorf("tls", "expected the names of two PEM files in certFile and keyFile")
		}
		return
	}
	c.TLS.CertFile, c.TLS.KeyFile = p.absolute(c.TLS.CertFile), p.absolute(c.TLS.KeyFile)
	if _, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile); err != nil {
		p.errorf("tls", "expected a PEM certificate and its private key in certFile and keyFile: %s", err)
	}
}

// absolute takes a relative path from the directory of the configuration.
func (p *problems) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	joined := filepath.Join(filepath.Dir(p.file), path)
	if abs, err := filepath.Abs(joined); err == nil {
		return abs
	}
	return joined
}

// checkAddress returns the address with an IP as its host.
func (p *problems) checkAddress(path, address string) string {
	parsed, err := ParseAddress(address)
	if err != nil {
		p.errorf(path, "%s", err)
		return address
	}
	return parsed
}

// ParseAddress checks the address of a listener, "host:port", as a file or a
// flag has it, and returns it with an IP address as its host. The error says
// what was expected.
func ParseAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf(`expected "host:port", such as "127.0.0.1:8080", got %s`, show(address))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", fmt.Errorf("expected a port from 0 to 65535, got %s", show(port))
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	default:
		if ip, err := netip.ParseAddr(host); err != nil || ip.Zone() != "" {
			return "", fmt.Errorf(`expected an IP address, "localhost" or nothing before the port, got %s`, show(host))
		}
	}
	return net.JoinHostPort(host, port), nil
}

func (p *problems) checkServer(s *Server, path string, env Env) {
	if p.has(join(path, "name")) && (!serverName.MatchString(s.Name) || len(s.Name) > maxServerName) {
		p.errorf(join(path, "name"), "expected a lower-case letter, then at most %d of a-z, 0-9 and '-', got %s", maxServerName-1, show(s.Name))
	}
	if s.Prefix != nil && (!toolPrefix.MatchString(*s.Prefix) || len(*s.Prefix) > maxPrefix) {
		p.errorf(join(path, "prefix"), "expected at most %d of A-Z, a-z, 0-9, '_', '.' and '-', got %s", maxPrefix, show(*s.Prefix))
	}
	switch {
	case !p.has(join(path, "way")):
		s.Way = WayAuto
	case s.Way != WayAuto && s.Way != WayBroker:
		p.errorf(join(path, "way"), `expected "auto" or "broker", got %s%s`, show(string(s.Way)), didYouMean(string(s.Way), []string{"auto", "broker"}))
	}
	if !p.has(join(path, "poll")) {
		s.Poll = Duration(defaultPoll)
	} else if time.Duration(s.Poll) < minPoll {
		p.errorf(join(path, "poll"), "expected a duration of at least %s", minPoll)
	}
	p.checkURL(s, path, env)
	p.checkHeaders(s, path, env)
	p.checkServerTLS(s, path)
	for _, key := range []string{"group", "labels"} {
		if p.has(join(path, key)) {
			p.warnf(join(path, key), "%s has no effect yet", key)
		}
	}
}

// checkURL expands and checks the URL. It never shows any of it: an URL may hold
// a credential, and the errors of net/url repeat it.
func (p *problems) checkURL(s *Server, path string, env Env) {
	where := join(path, "url")
	if !p.has(where) {
		return // already reported as missing
	}
	before := len(p.errors)
	s.URL = p.expand(where, s.URL, env)
	if len(p.errors) > before {
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || len(s.URL) > maxURL || strings.ContainsAny(s.URL, " \t"):
		p.errorf(where, `expected an URL such as "https://host/mcp" of at most %d characters`, maxURL)
	case u.Scheme != "http" && u.Scheme != "https":
		p.errorf(where, `expected an URL that begins with "http://" or "https://"`)
	case u.User != nil:
		p.errorf(where, "expected an URL without user and password: give the credential in headers")
	case u.Fragment != "" || strings.Contains(s.URL, "#"):
		p.errorf(where, `expected an URL without "#" and what follows it`)
	case u.Hostname() == "" || !validHost(u):
		p.errorf(where, "expected a host name or IP address, and a port from 1 to 65535 if any, after %s://", u.Scheme)
	case u.Scheme == "http" && s.TLS != nil:
		p.errorf(join(path, "tls"), "expected no tls, because the URL is http")
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

func validHost(u *url.URL) bool {
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return false
	}
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return len(host) <= 253 && hostName.MatchString(host)
}

// checkHeaders expands and checks the headers. Values are never shown.
func (p *problems) checkHeaders(s *Server, path string, env Env) {
	where := join(path, "headers")
	if len(s.Headers) > maxHeaders {
		p.errorf(where, "expected at most %d headers", maxHeaders)
		return
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		at, value := join(where, clip(name)), s.Headers[name]
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			p.errorf(at, "expected the name of an HTTP header")
		case ownHeader(lower):
			p.errorf(at, "expected another header: the gateway sets this one itself")
		case seen[lower]:
			p.errorf(at, "this header is already there in other letters")
		}
		seen[lower] = true
		value = p.expand(at, value, env)
		if !httpguts.ValidHeaderFieldValue(value) || len(value) > maxHeaderValue {
			p.errorf(at, "expected a value of at most %d bytes without line breaks or other control characters", maxHeaderValue)
		}
		s.Headers[name] = value
	}
}

// ownHeader tells the headers that the gateway, Envoy or HTTP itself set toward
// a server, in lower case.
func ownHeader(name string) bool {
	switch name {
	case "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive",
		"proxy-connection", "upgrade", "te", "trailer", "expect", "accept", "last-event-id",
		"mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name":
		return true
	}
	return strings.HasPrefix(name, "x-patchbay-") || strings.HasPrefix(name, "x-envoy-") || strings.HasPrefix(name, "mcp-param-")
}

func (p *problems) checkServerTLS(s *Server, path string) {
	if s.TLS == nil {
		return
	}
	if name := s.TLS.ServerName; name != "" && (len(name) > 253 || !hostName.MatchString(name)) {
		p.errorf(join(path, "tls.serverName"), "expected a host name, got %s", show(name))
	}
	if s.TLS.CAFile == "" {
		return
	}
	s.TLS.CAFile = p.absolute(s.TLS.CAFile)
	where := join(path, "tls.caFile")
	pem, err := os.ReadFile(s.TLS.CAFile)
	if err != nil {
		p.errorf(where, "expected a PEM file with certificates: %s", err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		p.errorf(where, "expected a PEM file with certificates, found none in %s", s.TLS.CAFile)
	}
}
