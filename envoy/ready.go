package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	readyPoll    = 50 * time.Millisecond
	readyTimeout = time.Second // of one try
	// readyPath is answered with 404 by our own routes, and by nobody who has
	// not got them.
	readyPath = "/.well-known/patchbay-ready"
)

// awaitReady returns nil as soon as Envoy answers at the address by the routes
// that xDS gave it, or ctx's error. There is no event to wait for: Envoy tells
// nobody.
func awaitReady(ctx context.Context, listen string, https bool) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		// It is our own process on this machine; the certificate names the
		// endpoint's public name, not this address.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	client := &http.Client{Transport: transport, Timeout: readyTimeout}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if probe(ctx, client, listen, https) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func probe(ctx context.Context, client *http.Client, listen string, https bool) error {
	scheme := "http://"
	if https {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+dialAddress(listen)+readyPath, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNotFound {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// dialAddress is where to reach what listens on the address: loopback where it
// listens on all.
func dialAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}
