package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
)

// keptName is the fixture's other name in the gateway's configuration, under
// which its calls never go direct.
const keptName = "kept"

// way is one way that calls take through the gateway.
type way struct {
	name, server string
	capabilities string // of the clients
	counted      *regexp.Regexp
	limit        float64 // of CPU per request, in units of the direct way's; 0 is none
}

// ways are measured in this order. The first is what the others are compared to.
func ways() []way {
	return []way{
		{name: "direct", server: serverName, capabilities: "{}", counted: directLine},
		{name: "can be asked", server: serverName, capabilities: `{"elicitation":{}}`, counted: brokerLine, limit: 1.3},
		{name: "broker", server: keptName, capabilities: "{}", counted: brokerLine, limit: 2},
	}
}

// wayCases are what is called on each way.
func wayCases() []benchCase {
	json := callCase(64)
	json.title = "ways, answer in JSON"
	events := callCase(64)
	events.title, events.events = "ways, answer in an event stream", true
	events.body = bytes.Replace(events.body, []byte("_"+toolName+`"`), []byte("_"+eventsToolName+`"`), 1)
	return []benchCase{json, events}
}

// on returns the case as it is called on a way.
func (c *benchCase) on(w *way) benchCase {
	out := *c
	out.body = bytes.Replace(c.body, []byte(`"`+serverName+"_"), []byte(`"`+w.server+"_"), 1)
	return out
}

// runWays measures the chosen cases on all ways through one gateway, and so one
// Envoy.
func runWays(ctx context.Context, opt *options, cases []benchCase, r *report) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &stage{opt: opt, dir: dir}
	defer s.close()
	if err := s.startWays(ctx); err != nil {
		return err
	}
	for i := range cases {
		m, err := s.measureWays(ctx, &cases[i], os.Stderr)
		if err != nil {
			return err
		}
		r.ways = append(r.ways, m)
	}
	return nil
}

// startWays starts a gateway and, for each way, a shape that is its own clients
// alone.
func (s *stage) startWays(ctx context.Context) error {
	fixture, err := s.start("fixture", nil, s.opt.self, "fixture", "2")
	if err != nil {
		return err
	}
	if s.fixture, err = fixture.line(); err != nil {
		return err
	}
	admin, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	sh := shape{name: patchbayShape, fixed: never}
	if sh.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	at := s.sockets(sh.name)
	kept := fmt.Sprintf("- {name: %s, url: \"http://%s/mcp\", poll: 1h, timeout: 30s, way: broker}\n", keptName, s.fixture)
	file, bootstrap, err := s.configure(ctx, sh.name, sh.addr, admin, kept+withoutLog, at)
	if err != nil {
		return err
	}
	if sh.server, err = s.start(sh.name, nil, s.opt.patchbay, append([]string{"serve", "--config", file}, at.flags()...)...); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { _, err := get(ctx, "http://"+admin+"/readyz"); return err }
	if err := sh.server.waitFor(ctx, "it is ready", ready); err != nil {
		return err
	}
	if err := s.startEnvoy(ctx, &sh, bootstrap); err != nil {
		return err
	}
	for _, w := range ways() {
		own := sh
		own.name = w.name
		own.direct = func(ctx context.Context) (int, error) { return callsBy(ctx, admin, w.counted) }
		s.shapes = append(s.shapes, &own)
		call := callCase(64)
		if err := own.openSessionsAs(ctx, w.capabilities, call.on(&w)); err != nil {
			return err
		}
	}
	return nil
}

// measureWays goes round the ways with one case.
func (s *stage) measureWays(ctx context.Context, k *benchCase, progress io.Writer) (*samples, error) {
	out := &samples{c: k, windows: map[string][]sample{}}
	var calls []benchCase
	var want []expected
	for i, w := range ways() {
		calls = append(calls, k.on(&w))
		out.shapes = append(out.shapes, w.name)
		e, err := s.shapes[i].clients[0].learn(&calls[i], false)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", w.name, k.title, err)
		}
		want = append(want, e)
	}
	return out, s.rounds(ctx, out, s.shapes, func(i int) (*benchCase, *expected) { return &calls[i], &want[i] }, progress)
}

const waysIntroduction = `
## Ways

The same small call (64 B of arguments) on each way through one Envoy and one Patchbay, whose metrics are asked whether it went it:

- **direct**: ext_proc decides, and Envoy sends the call to the server.
- **can be asked**: the client declared elicitation. Envoy takes the call to the broker without ext_proc; nothing is asked.
- **broker**: the server has ` + "`way: broker`" + `. ext_proc decides, and Envoy takes the call to the broker.

`

func (r *report) writeWays(w io.Writer) {
	if len(r.ways) == 0 {
		return
	}
	_, _ = io.WriteString(w, waysIntroduction) // into memory
	t := newTable(w, "case", "way", "CPU us/request", "of it Envoy", "of it Go", "to direct", "limit", "")
	all := ways()
	for _, c := range r.ways {
		for i := range all {
			ws := c.windows[all[i].name]
			ratio := ratioOf(ws, c.windows[all[0].name])
			least := leastCPU(ws)
			t.row(c.c.title, all[i].name, fmt.Sprintf("%.1f", micros(least.cpu())), fmt.Sprintf("%.1f", micros(least.envoy)),
				fmt.Sprintf("%.1f", micros(least.own)), ratio.String(), number(all[i].limit), verdict(ratio.minima, all[i].limit))
		}
	}
	t.flush()
}
