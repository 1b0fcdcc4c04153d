package upstream

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives growing pauses between attempts. It belongs to one goroutine.
type backoff struct {
	min, max time.Duration
	next     time.Duration // 0: start with min
}

// pause returns the next pause: doubled each time up to max, and jittered in its
// upper half, so that servers that died together are not all tried together.
func (b *backoff) pause() time.Duration {
	d := max(b.next, b.min)
	b.next = min(2*d, b.max)
	d = min(d, b.max)
	return d/2 + rand.N(d/2+1)
}

func (b *backoff) reset() { b.next = 0 }

// sleep waits for d and tells whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
