package session

import (
	"context"
	"crypto/rand"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Options.
const (
	DefaultIdleTimeout = 30 * time.Minute
	DefaultLifetime    = 30 * 24 * time.Hour
	DefaultMaxSessions = 100_000
)

// Options say how a Table works. Zero values mean the defaults.
type Options struct {
	// Keys seal the ids. Nil means a random key: no id outlives the process.
	Keys *Keyring
	// Tombstones remember the ended ids. Nil means in memory only.
	Tombstones *Tombstones
	// IdleTimeout is after how long without use the memory and the backend
	// sessions of a session are freed. It must exceed the longest call: a
	// direct call is use only when it starts.
	IdleTimeout time.Duration
	// Lifetime is how long an id is valid.
	Lifetime time.Duration
	// MaxSessions bounds the sessions in memory. Beyond it one that is not
	// held and was not used for long is freed, as by idleness.
	MaxSessions int
	// Marked are the capabilities of which any makes the session's token begin
	// with Mark, by which a router before the gateway can tell. The mark is no
	// secret and proves nothing: Find checks it against what is sealed.
	Marked uint32
	Mark   string
	// Now is the clock.
	Now func() time.Time
	// CloseBackend ends a backend session that is no longer used. It runs on
	// a goroutine of its own, at most 16 at once, and must bound its own time;
	// nil does nothing.
	CloseBackend func(server string, b *Backend)
	// Forgotten is called when the memory of a session is freed, at its end or
	// by idleness, for those who keep more of it elsewhere. It runs under the
	// table's locks: it must not block, nor call the table. Nil does nothing.
	Forgotten func(id ID)
}

// shardCount spreads the table's locks; a power of two.
const shardCount = 64

// Table holds what only memory holds of the sessions, and opens and ends them.
type Table struct {
	opt     Options
	seed    maphash.Seed
	shards  [shardCount]shard
	count   atomic.Int64
	evictAt atomic.Uint32 // the shard where the next search for a victim begins
	closer  closer

	running context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup // the sweeper and the flights

	mu     sync.Mutex
	closed bool // guarded by mu
}

// shard holds the entries of some tokens. An entry's key is its whole token, so
// that a known token needs no decryption: the map holds only what once opened.
type shard struct {
	mu   sync.RWMutex
	live map[string]*live // guarded by mu
}

// NewTable makes a table and starts its sweeper; Close ends it.
func NewTable(o Options) *Table {
	if o.Keys == nil {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // never fails
		o.Keys = NewKeyring(secret)
	}
	if o.Tombstones == nil {
		o.Tombstones, _ = OpenTombstones("", o.Now) // fails for files only
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	if o.Lifetime <= 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = DefaultMaxSessions
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Table{opt: o, seed: maphash.MakeSeed()}
	t.closer.call = o.CloseBackend
	for i := range t.shards {
		t.shards[i].live = map[string]*live{}
	}
	t.running, t.stop = context.WithCancel(context.Background())
	t.wg.Go(t.sweepLoop)
	return t
}

// Close stops the sweeper and the openings of backend sessions under way, and
// waits for them and for the calls of CloseBackend that have begun. The backend
// sessions in memory are left to their servers. OpenBackend fails from then on.
func (t *Table) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.wg.Wait()
	t.closer.close()
}

// begin counts one more goroutine that Close waits for, unless it is too late.
func (t *Table) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Add(1)
	}
	return !t.closed
}

// New opens a session with claims c, whose ID and Expires it fills in, and
// returns it with its token. It costs no memory in the table.
func (t *Table) New(c Claims) (s *Session, token string) {
	_, _ = rand.Read(c.ID[:]) // never fails
	c.Expires = time.Unix(t.opt.Now().Add(t.opt.Lifetime).Unix(), 0)
	c.Principal, c.VirtualServer = digest(c.Principal), digest(c.VirtualServer)
	var plain [64 + 2*MaxClaim]byte
	token = t.prefix(&c) + t.opt.Keys.Seal(PurposeSession, c.append(plain[:0]))
	return &Session{table: t, claims: c, token: token}, token
}

// Find returns the session of a token, for the principal that opened it. A valid
// token that is not in memory is adopted, at no cost in the table. The error is
// ErrUnknown, ErrEnded or ErrExpired.
func (t *Table) Find(token, principal string) (*Session, error) {
	now := t.opt.Now()
	s, inMemory := t.lookup(token, now)
	if !inMemory {
		s = &Session{table: t, token: token}
		sealed, marked := token, false
		if t.opt.Mark != "" {
			sealed, marked = strings.CutPrefix(token, t.opt.Mark)
		}
		if err := t.opt.Keys.openClaims(sealed, &s.claims); err != nil {
			return nil, err
		}
		if marked != (t.prefix(&s.claims) != "") {
			return nil, ErrUnknown // another spelling of the id
		}
	}
	switch {
	case s.claims.Principal != digest(principal):
		return nil, ErrUnknown
	case !now.Before(s.claims.Expires):
		return nil, ErrExpired
	case !inMemory && t.opt.Tombstones.Has(s.claims.ID):
		return nil, ErrEnded
	}
	return s, nil
}

func (t *Table) prefix(c *Claims) string {
	if c.Capabilities&t.opt.Marked != 0 {
		return t.opt.Mark
	}
	return ""
}

// lookup returns the session of a token that has an entry, and marks it used.
func (t *Table) lookup(token string, now time.Time) (*Session, bool) {
	sh := t.shard(token)
	sh.mu.RLock()
	l := sh.live[token]
	sh.mu.RUnlock()
	if l == nil {
		return nil, false
	}
	l.used.Store(now.UnixNano())
	return l.session, true
}

func (t *Table) shard(token string) *shard {
	return &t.shards[maphash.String(t.seed, token)%shardCount]
}

// entry returns the entry of s, held once more, so that it stays until the
// holder releases it; it is made if there is none. It fails with ErrEnded.
func (t *Table) entry(s *Session) (*live, error) {
	now := t.opt.Now()
	sh := t.shard(s.token)
	sh.mu.Lock()
	l := sh.live[s.token]
	if l == nil {
		// End writes the tombstone before it looks here: either it is seen
		// now, or End will find this entry.
		if t.opt.Tombstones.Has(s.claims.ID) || !now.Before(s.claims.Expires) {
			sh.mu.Unlock()
			return nil, ErrEnded
		}
		l = &live{session: s}
		sh.live[s.token] = l
		t.count.Add(1)
	}
	l.used.Store(now.UnixNano())
	l.mu.Lock()
	l.holds++
	l.mu.Unlock()
	sh.mu.Unlock()
	t.shrink()
	return l, nil
}

// peek returns the entry of s if there is one.
func (t *Table) peek(s *Session) *live {
	sh := t.shard(s.token)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.live[s.token]
}

// End ends a session for good, as DELETE does: its tombstone is written, its
// streams' Done closes and its backend sessions are closed. The error says that
// the tombstone could not be made durable; the session has ended in any case.
func (t *Table) End(s *Session) error {
	err := t.opt.Tombstones.Add(s.claims.ID, s.claims.Expires)
	sh := t.shard(s.token)
	sh.mu.Lock()
	l := sh.live[s.token]
	if l != nil {
		t.removeLocked(sh, l)
	}
	sh.mu.Unlock()
	if l != nil {
		l.end(t)
	}
	return err
}

// removeLocked takes l out of the table; the caller calls l.end or, for one that
// nobody holds, l.free. sh.mu is held.
func (t *Table) removeLocked(sh *shard, l *live) {
	delete(sh.live, l.session.token)
	t.count.Add(-1)
}

// DropServer forgets and closes the backend sessions of a server that was
// removed.
func (t *Table) DropServer(server string) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.RLock()
		for _, l := range sh.live {
			if b := l.drop(server); b != nil {
				t.closer.add(server, b)
			}
		}
		sh.mu.RUnlock()
	}
}

// Len is how many sessions are in memory.
func (t *Table) Len() int { return int(t.count.Load()) }
