package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"patchbay.dev/internal/config"
)

// Options are the settings of this package. The zero value of each field means
// the default that its comment names.
type Options struct {
	// Log gets connections found and lost; default: nothing is logged.
	Log *slog.Logger
	// Version is the gateway's version, told to servers. Default "dev".
	Version string
	// DialTimeout bounds connecting and the TLS handshake, each. Default 5 s.
	DialTimeout time.Duration
	// RequestTimeout bounds initialize and each page of a list. Default 10 s.
	RequestTimeout time.Duration
	// PingEvery is how often a watched server is pinged. Default 10 s.
	PingEvery time.Duration
	// PingTimeout is after how long a ping counts as failed. Default 5 s.
	PingTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause between two attempts to
	// connect. Default 0.2 s and 15 s.
	BackoffMin, BackoffMax time.Duration
	// Updated is called for each notifications/resources/updated on a watcher's
	// stream, with the server's name, the URI in it and the whole message. It
	// must not block. Nil drops them.
	Updated func(server, uri string, message []byte)
	// Limits bound what a server may send.
	Limits Limits
	// Resolver finds the addresses of servers known by name. Default: the
	// system's.
	Resolver *net.Resolver
}

// Limits bound what a server may send. The zero value of each field means the
// default that its comment names.
type Limits struct {
	// Answer is the largest answer that is read whole (lists, initialize), in
	// bytes. Default 64 MiB.
	Answer int64
	// Event is the largest event of a stream, in bytes. Default 16 MiB.
	Event int
	// Pages is how many pages a list may have. Default 1000.
	Pages int
	// Items is how many items a list may have. Default 10,000.
	Items int
	// Catalog is how large all items of a server may be together, in bytes.
	// Default 64 MiB.
	Catalog int
}

const mib = 1 << 20

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	orDefault(&o.Version, "dev")
	orDefault(&o.DialTimeout, 5*time.Second)
	orDefault(&o.RequestTimeout, 10*time.Second)
	orDefault(&o.PingEvery, 10*time.Second)
	orDefault(&o.PingTimeout, 5*time.Second)
	orDefault(&o.BackoffMin, 200*time.Millisecond)
	orDefault(&o.BackoffMax, 15*time.Second)
	orDefault(&o.Resolver, net.DefaultResolver)
	orDefault(&o.Limits.Answer, 64*mib)
	orDefault(&o.Limits.Event, 16*mib)
	orDefault(&o.Limits.Pages, 1000)
	orDefault(&o.Limits.Items, 10_000)
	orDefault(&o.Limits.Catalog, 64*mib)
	return o
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

const (
	// idleTimeout is below the 5 s after which Node and uvicorn close idle
	// connections, so that requests seldom meet one that is just closing.
	idleTimeout = 4 * time.Second
	// maxIdle is how many idle connections to one server are kept.
	maxIdle = 64
	// maxResponseHeader bounds the headers of an answer, in bytes.
	maxResponseHeader = 64 << 10
)

// Ref names a session at a server and the revision it speaks.
type Ref struct {
	// ID is the server's session id; empty when the server gives none.
	ID string
	// Revision is the protocolVersion agreed on; empty before initialize.
	Revision string
	// Address is which of the server's addresses holds the session, as
	// "ip:port"; empty where the server's url names an IP address.
	Address string
}

// Client sends requests to one server. It keeps no session: the caller does. It
// is safe for concurrent use.
type Client struct {
	url    string
	host   string // Host header: configured, or that of the url
	places *places
	header http.Header
	opt    Options
	tr     *http.Transport
	lastID atomic.Int64
}

// NewClient makes a client of the server that cfg describes. It connects to
// nothing. The error says what is wrong with cfg.
func NewClient(cfg config.Server, opt Options) (*Client, error) {
	opt = opt.withDefaults()
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server %s: the url must be http://host/path or https://host/path", cfg.Name)
	}
	u.User, u.Fragment = nil, ""
	tlsConfig, err := tlsConfigOf(cfg)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", cfg.Name, err)
	}
	c := &Client{
		url: u.String(), host: u.Host, header: http.Header{}, opt: opt,
		places: placesOf(u.Hostname(), u.Port(), u.Scheme, opt.Resolver),
	}
	for name, value := range cfg.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			c.host = value
			continue
		}
		c.header.Set(name, value)
	}
	if tlsConfig.ServerName == "" {
		tlsConfig.ServerName = u.Hostname() // and not the address that is connected to
	}
	dialer := &net.Dialer{Timeout: opt.DialTimeout, KeepAlive: 15 * time.Second}
	c.tr = &http.Transport{
		DialContext:            countingDialer(dialer),
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    opt.DialTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: opt.PingEvery, PingTimeout: opt.PingTimeout},
		DisableCompression:     true, // bodies are handed on as they are
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
	return c, nil
}

func tlsConfigOf(cfg config.Server) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS == nil {
		return out, nil
	}
	out.ServerName = cfg.TLS.ServerName
	if cfg.TLS.CAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(cfg.TLS.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.caFile: %w", err)
	}
	out.RootCAs = x509.NewCertPool()
	if !out.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.caFile: %s holds no certificate in PEM", cfg.TLS.CAFile)
	}
	return out, nil
}

// Close closes idle connections. Requests under way end by their own contexts.
func (c *Client) Close() { c.tr.CloseIdleConnections() }
