package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // the machine may have no time zones

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxCountdown = 60
	maxInterval  = 5 * time.Second
)

// clock is the server that tells the time. It has no state.
type clock struct{ now func() time.Time }

type nowIn struct {
	Timezone string `json:"timezone,omitempty" jsonschema:"IANA name of a time zone, such as Europe/Berlin; UTC when left out"`
}

type convertIn struct {
	Time     string `json:"time" jsonschema:"the time to convert, in RFC 3339, such as 2026-11-21T09:30:00+01:00"`
	Timezone string `json:"timezone" jsonschema:"IANA name of the time zone to convert it to, such as Asia/Tokyo"`
}

type timeOut struct {
	Time     string `json:"time" jsonschema:"the time in RFC 3339"`
	Timezone string `json:"timezone" jsonschema:"IANA name of the time zone"`
	Weekday  string `json:"weekday" jsonschema:"the day of the week in English"`
	Unix     int64  `json:"unix" jsonschema:"seconds since 1970-01-01T00:00:00Z"`
}

type countdownIn struct {
	From       int `json:"from" jsonschema:"the number to count down from, 1 to 60"`
	IntervalMS int `json:"intervalMs,omitempty" jsonschema:"milliseconds between two numbers, at most 5000; 1000 when left out"`
}

type countdownOut struct {
	Counted int `json:"counted" jsonschema:"how many numbers were counted"`
}

func newClock(now func() time.Time) *mcp.Server {
	c := &clock{now: now}
	s := mcp.NewServer(&mcp.Implementation{Name: "patchbay-demo-clock", Title: "Clock", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "Tells the time in any time zone.",
		Capabilities: &mcp.ServerCapabilities{},
	})
	closed := false
	mcp.AddTool(s, &mcp.Tool{
		Name: "now", Title: "Current time",
		Description: "Returns the current date and time in a time zone.",
		Annotations: &mcp.ToolAnnotations{Title: "Current time", ReadOnlyHint: true, OpenWorldHint: &closed},
	}, c.tellNow)
	mcp.AddTool(s, &mcp.Tool{
		Name: "convert", Title: "Convert a time",
		Description: "Converts a date and time to another time zone.",
		Annotations: &mcp.ToolAnnotations{Title: "Convert a time", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &closed},
	}, c.convert)
	mcp.AddTool(s, &mcp.Tool{
		Name: "countdown", Title: "Countdown",
		Description: "Counts down to zero, one number per interval, and reports its progress on the way.",
		Annotations: &mcp.ToolAnnotations{Title: "Countdown", ReadOnlyHint: true, OpenWorldHint: &closed},
	}, c.countdown)
	return s
}

func (c *clock) tellNow(_ context.Context, _ *mcp.CallToolRequest, in nowIn) (*mcp.CallToolResult, timeOut, error) {
	if in.Timezone == "" {
		in.Timezone = "UTC"
	}
	out, err := inZone(c.now(), in.Timezone)
	return nil, out, err
}

func (c *clock) convert(_ context.Context, _ *mcp.CallToolRequest, in convertIn) (*mcp.CallToolResult, timeOut, error) {
	t, err := time.Parse(time.RFC3339, in.Time)
	if err != nil {
		return nil, timeOut{}, fmt.Errorf("the time %.40q is not in RFC 3339, such as 2026-11-21T09:30:00+01:00", in.Time)
	}
	out, err := inZone(t, in.Timezone)
	return nil, out, err
}

func inZone(t time.Time, name string) (timeOut, error) {
	if name == "" || name == "Local" { // LoadLocation takes them for this machine's
		return timeOut{}, errors.New("the time zone must be an IANA name, such as Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return timeOut{}, fmt.Errorf("the time zone %.40q is not known: use an IANA name, such as Europe/Berlin", name)
	}
	t = t.In(zone)
	return timeOut{Time: t.Format(time.RFC3339), Timezone: name, Weekday: t.Weekday().String(), Unix: t.Unix()}, nil
}

func (c *clock) countdown(ctx context.Context, req *mcp.CallToolRequest, in countdownIn) (*mcp.CallToolResult, countdownOut, error) {
	interval := time.Duration(in.IntervalMS) * time.Millisecond
	if in.IntervalMS == 0 {
		interval = time.Second
	}
	if in.From < 1 || in.From > maxCountdown || interval < 0 || interval > maxInterval {
		return nil, countdownOut{}, fmt.Errorf("from must be 1 to %d, intervalMs at most %d", maxCountdown, maxInterval.Milliseconds())
	}
	token := req.Params.GetProgressToken()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; n <= in.From; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, countdownOut{}, fmt.Errorf("stopped at %d: %w", in.From-n+1, ctx.Err())
		}
		if token == nil {
			continue
		}
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: float64(n), Total: float64(in.From),
			Message: fmt.Sprintf("%d", in.From-n),
		}); err != nil {
			return nil, countdownOut{}, fmt.Errorf("report progress: %w", err)
		}
	}
	return nil, countdownOut{Counted: in.From}, nil
}
