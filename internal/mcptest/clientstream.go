package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/tmaxmax/go-sse"
)

// GetStream is an open GET stream of a [Client].
type GetStream struct {
	// Status and Header are those of the response. A stream that was refused
	// (Status not 200) has no events.
	Status int
	Header http.Header
	// Events gets each event; it is closed when the stream has ended. The data
	// of priming events is empty.
	Events <-chan sse.Event

	c     *Client
	end   context.CancelFunc
	ended sync.WaitGroup
}

// Stream opens the GET stream; lastEventID, when not empty, asks to resume. It
// returns nil, and the test has failed, when no answer came. The stream ends
// with the test.
func (c *Client) Stream(lastEventID string, header ...string) *GetStream {
	c.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := c.request(ctx, http.MethodGet, http.NoBody, header)
	if err != nil {
		cancel()
		c.tb.Errorf("mcptest: GET: %v", err)
		return nil
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastEventID != "" {
		req.Header.Set("Last-Event-Id", lastEventID)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		cancel()
		c.tb.Errorf("mcptest: GET: %v", err)
		return nil
	}
	events := make(chan sse.Event, streamBuffer)
	s := &GetStream{Status: resp.StatusCode, Header: resp.Header, Events: events, c: c, end: cancel}
	s.ended.Go(func() {
		defer close(events)
		defer func() { _ = resp.Body.Close() }()
		if !isEventStream(resp.Header) {
			return
		}
		for ev, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: maxEvent}) {
			if err != nil {
				return // the stream broke or was closed: Events ends
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				return
			}
		}
	})
	c.tb.Cleanup(s.Close)
	return s
}

// Close ends the stream and waits for that. It is safe to call it twice.
func (s *GetStream) Close() {
	s.end()
	s.ended.Wait()
}

// Await returns the data of the next event whose message has the method, and
// skips the others. Nil, and the test has failed, when none comes in time.
func (s *GetStream) Await(method string, within time.Duration) json.RawMessage {
	s.c.tb.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case ev, ok := <-s.Events:
			if !ok {
				s.c.tb.Errorf("mcptest: the GET stream ended while %s was waited for", method)
				return nil
			}
			var m struct {
				Method string `json:"method"`
			}
			if json.Unmarshal([]byte(ev.Data), &m) == nil && m.Method == method {
				return json.RawMessage(ev.Data)
			}
		case <-timer.C:
			s.c.tb.Errorf("mcptest: no %s within %v", method, within)
			return nil
		}
	}
}
