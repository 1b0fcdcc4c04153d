package session

import (
	"sync"
	"time"
)

// sweepLoop frees what idles, until the table closes.
func (t *Table) sweepLoop() {
	// An idle session may stay a quarter longer than it must.
	tick := time.NewTicker(min(max(t.opt.IdleTimeout/4, 10*time.Millisecond), time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.sweep()
		case <-t.running.Done():
			return
		}
	}
}

// sweep frees the sessions that idle and ends those whose lifetime is over.
func (t *Table) sweep() {
	now := t.opt.Now()
	idle := now.Add(-t.opt.IdleTimeout).UnixNano()
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for _, l := range sh.live {
			switch {
			case !now.Before(l.session.claims.Expires):
				t.removeLocked(sh, l)
				l.end(t) // held or not
			case l.used.Load() <= idle && !l.held():
				t.removeLocked(sh, l)
				l.free(t)
			}
		}
		sh.mu.Unlock()
	}
}

// sample is among how many sessions of a shard the victim is sought.
const sample = 16

// shrink frees sessions until no more than MaxSessions are in memory, or all
// that are there are held: streams and running calls have limits of their own.
func (t *Table) shrink() {
	for t.count.Load() > int64(t.opt.MaxSessions) {
		found := false
		for range shardCount {
			sh := &t.shards[t.evictAt.Add(1)%shardCount]
			if found = t.evict(sh); found {
				break
			}
		}
		if !found {
			return
		}
	}
}

// evict frees one session of the shard: of a few that are not held, the one that
// was not used for longest.
func (t *Table) evict(sh *shard) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var victim *live
	n := 0
	for _, l := range sh.live { // starts anywhere
		if n++; n > sample && victim != nil {
			break
		}
		if !l.held() && (victim == nil || l.used.Load() < victim.used.Load()) {
			victim = l
		}
	}
	if victim == nil {
		return false
	}
	t.removeLocked(sh, victim)
	victim.free(t)
	return true
}

func (l *live) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holds > 0
}

// maxClosing is how many calls of CloseBackend run at once, maxQueue how many
// more may wait. Beyond that backend sessions are left to their servers.
const (
	maxClosing = 16
	maxQueue   = 1 << 16
)

// closer runs CloseBackend on goroutines of its own.
type closer struct {
	call func(server string, b *Backend) // may be nil

	mu      sync.Mutex
	queue   []slot // guarded by mu
	running int    // guarded by mu
	closed  bool   // guarded by mu
	wg      sync.WaitGroup
}

// add never blocks.
func (c *closer) add(server string, b *Backend) {
	if c.call == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) >= maxQueue {
		return
	}
	c.queue = append(c.queue, slot{server, b})
	if c.running < maxClosing {
		c.running++
		c.wg.Go(c.work)
	}
}

func (c *closer) work() {
	for {
		c.mu.Lock()
		if c.closed || len(c.queue) == 0 {
			c.running--
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		c.call(next.server, next.backend)
	}
}

// close drops the queue and waits for the running calls.
func (c *closer) close() {
	c.mu.Lock()
	c.closed = true
	c.queue = nil
	c.mu.Unlock()
	c.wg.Wait()
}
