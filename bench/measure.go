package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// warmUp comes before each window: connections that idled out are opened again,
// and caches and the other process's pages are there.
const warmUp = 300 * time.Millisecond

// sample is one window of one shape.
type sample struct {
	rate       float64       // requests a second
	p50, p99   time.Duration // of a request
	envoy, own time.Duration // CPU per request of Envoy and of the Go process
}

func (s *sample) cpu() time.Duration { return s.envoy + s.own }

// samples are all windows of one case, by shape, in the order of the rounds.
type samples struct {
	c       *benchCase
	shapes  []string // in the order in which they were measured
	windows map[string][]sample
}

// measure goes round the shapes of a running stage with one case.
func (s *stage) measure(ctx context.Context, k *benchCase, progress io.Writer) (*samples, error) {
	out := &samples{c: k, windows: map[string][]sample{}}
	want := map[string]*expected{}
	shapes := slices.DeleteFunc(slices.Clone(s.shapes), func(sh *shape) bool { return sh.callsOnly && k.tools > 0 })
	for _, sh := range shapes {
		out.shapes = append(out.shapes, sh.name)
		if sh.prepare != nil {
			if err := sh.prepare(k); err != nil {
				return nil, err
			}
		}
		e, err := sh.clients[0].learn(k, sh.fixed(k))
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", sh.name, k.title, err)
		}
		want[sh.name] = &e
	}
	return out, s.rounds(ctx, out, shapes, func(i int) (*benchCase, *expected) { return k, want[shapes[i].name] }, progress)
}

// rounds measures the shapes in turn, each with the case that is its own.
func (s *stage) rounds(
	ctx context.Context, out *samples, shapes []*shape, own func(i int) (*benchCase, *expected), progress io.Writer,
) error {
	for round := range s.opt.rounds {
		fmt.Fprintf(progress, "%-24s round %d of %d:", out.c.title, round+1, s.opt.rounds)
		for i, sh := range shapes {
			k, want := own(i)
			w, err := sh.window(ctx, k, want, s.opt.time)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", sh.name, k.title, err)
			}
			out.windows[sh.name] = append(out.windows[sh.name], w)
			fmt.Fprintf(progress, "  %s %.0f us", sh.name, micros(w.cpu()))
		}
		fmt.Fprintln(progress)
	}
	return nil
}

// window measures one shape once.
func (sh *shape) window(ctx context.Context, k *benchCase, want *expected, during time.Duration) (sample, error) {
	fixed := sh.fixed(k)
	if _, err := generate(sh.clients, k, want, fixed, warmUp); err != nil {
		return sample{}, err
	}
	directBefore, err := sh.countDirect(ctx)
	if err != nil {
		return sample{}, err
	}
	envoyBefore, ownBefore, err := sh.cpu()
	if err != nil {
		return sample{}, err
	}
	l, err := generate(sh.clients, k, want, fixed, during)
	if err != nil {
		return sample{}, err
	}
	envoyAfter, ownAfter, err := sh.cpu()
	if err != nil {
		return sample{}, err
	}
	directAfter, err := sh.countDirect(ctx)
	if err != nil {
		return sample{}, err
	}
	if direct := directAfter - directBefore; sh.direct != nil && k.tools == 0 && direct != l.requests {
		return sample{}, fmt.Errorf("%w: %d of %d calls went the right way", errAnswer, direct, l.requests)
	}
	n := time.Duration(l.requests)
	return sample{
		rate: l.rate, p50: l.p50, p99: l.p99,
		envoy: (envoyAfter - envoyBefore) / n, own: (ownAfter - ownBefore) / n,
	}, ctx.Err() //nolint:wrapcheck // interrupted
}

// countDirect is 0 where ways are not known.
func (sh *shape) countDirect(ctx context.Context) (int, error) {
	if sh.direct == nil {
		return 0, nil
	}
	return sh.direct(ctx)
}

// cpu is what the shape's processes have run so far.
func (sh *shape) cpu() (envoy, own time.Duration, err error) {
	if envoy, err = sh.envoy.cpu(); err != nil || sh.server == nil {
		return envoy, 0, err
	}
	own, err = sh.server.cpu()
	return envoy, own, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
