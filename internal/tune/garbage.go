package tune

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// headroom is how much garbage may be there before it is collected, in
	// bytes, once what lives is more than a quarter of it: ten thousand quiet
	// streams would else let the heap grow to five times what they need.
	headroom = 64 << 20
	// leastPercent bounds the work of the collector from above: however much
	// lives, half as much again is allocated before all of it is looked at.
	leastPercent = 50
)

// percentFor returns how much the heap may grow, in percent of what lives, both
// in bytes.
func percentFor(live uint64) int {
	if live <= headroom*100/gcPercent {
		return gcPercent
	}
	return max(leastPercent, int(headroom*100/live))
}

// pace sets the percentage anew after each collection. It returns a function that
// ends that.
func pace() (stop func()) {
	p := &pacer{percent: gcPercent}
	p.again()
	return func() { p.stopped.Store(true) }
}

// pacer is used by one finalizer after the other, and those run one at a time.
type pacer struct {
	percent int
	stopped atomic.Bool
}

// again makes a piece of garbage whose finalizer runs after the next collection.
func (p *pacer) again() {
	// With a pointer in it, so that it is not put together with other small
	// objects, one of which may live.
	runtime.SetFinalizer(&struct{ p *pacer }{p}, func(*struct{ p *pacer }) { p.collected() })
}

func (p *pacer) collected() {
	if p.stopped.Load() {
		return
	}
	// The collector counts stacks as a part of what lives.
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() == metrics.KindUint64 && s[1].Value.Kind() == metrics.KindUint64 {
		// Setting it stops the world for a moment, so not for little.
		if n := percentFor(s[0].Value.Uint64() + s[1].Value.Uint64()); n < p.percent*9/10 || n > p.percent*11/10 {
			p.percent = n
			debug.SetGCPercent(n)
		}
	}
	p.again()
}
