package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// The shapes; variants of Patchbay begin with its name.
const (
	plainShape       = "plain"
	nullShape        = "null"
	patchbayShape    = "patchbay"
	patchbayLogShape = "patchbay+log"
)

// shape is one thing that is measured: an Envoy and what stands behind it.
type shape struct {
	name    string
	envoy   *process
	server  *process // the Go process; nil has none
	addr    string   // of Envoy's listener
	clients []*client
	// callsOnly: it differs from another shape in calls alone.
	callsOnly bool
	// fixed tells of which case the answers always have the same id.
	fixed func(*benchCase) bool
	// prepare is called before a case is measured.
	prepare func(*benchCase) error
	// direct returns how many calls have gone the way that they should, which is
	// the direct one but in ways.go; nil does not know ways.
	direct func(context.Context) (int, error)
}

// connect opens the connections with a session id that nobody looks at, and
// waits until calls are answered.
func (sh *shape) connect(ctx context.Context, sessionID string) error {
	call := callCase(64)
	return sh.server.waitFor(ctx, "calls are answered", func(ctx context.Context) error {
		for len(sh.clients) < connections {
			c, err := dial(ctx, sh.addr)
			if err != nil {
				return err
			}
			c.use(sessionID)
			if _, err := c.learn(&call, false); err != nil {
				_ = c.conn.Close()
				return err
			}
			sh.clients = append(sh.clients, c)
		}
		return nil
	})
}

// settledRSS reads the memory of a process that has had a second to itself.
func settledRSS(ctx context.Context, p *process) (int64, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return 0, ctx.Err() //nolint:wrapcheck // interrupted
	}
	return p.rss()
}

// openSessions opens the connections and their sessions, and calls until every
// session's calls go direct.
func (sh *shape) openSessions(ctx context.Context) error {
	return sh.openSessionsAs(ctx, "{}", callCase(64))
}

// openSessionsAs opens sessions of clients with these capabilities, and makes the
// call until all go the way that they should.
func (sh *shape) openSessionsAs(ctx context.Context, capabilities string, call benchCase) error {
	for range connections {
		c, err := dial(ctx, sh.addr)
		if err != nil {
			return err
		}
		sh.clients = append(sh.clients, c)
		if err := c.openAs(capabilities); err != nil {
			return fmt.Errorf("%s: %w\n%s", sh.name, err, sh.server.log.String())
		}
	}
	return sh.server.waitFor(ctx, "calls go the right way", func(ctx context.Context) error {
		before, err := sh.direct(ctx)
		if err != nil {
			return err
		}
		for _, c := range sh.clients {
			if _, err := c.learn(&call, false); err != nil {
				return err
			}
		}
		after, err := sh.direct(ctx)
		if err == nil && after-before != len(sh.clients) {
			err = fmt.Errorf("%d of %d calls went the right way", after-before, len(sh.clients))
		}
		return err
	})
}

func never(*benchCase) bool { return false }

// freeAddress returns an address that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	return l.Addr().String(), l.Close() //nolint:wrapcheck // cannot happen
}

// get returns a page that must have status 200.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("GET: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the URL
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, body)
	}
	return body, err
}

// Calls in Patchbay's metrics, by their way.
var (
	directLine = regexp.MustCompile(`(?m)^patchbay_requests_total\{method="tools/call",outcome="routed",way="direct"\} (\S+)$`)
	brokerLine = regexp.MustCompile(`(?m)^patchbay_requests_total\{method="tools/call",outcome="ok",way="broker"\} (\S+)$`)
	errMetric  = errors.New("metrics: unreadable count of calls")
)

// callsBy reads from Patchbay's metrics how many calls went a way.
func callsBy(ctx context.Context, admin string, way *regexp.Regexp) (int, error) {
	page, err := get(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	m := way.FindSubmatch(page)
	if m == nil {
		return 0, nil // none so far
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errMetric, err)
	}
	return int(v), nil
}
