package session

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newTable(t *testing.T, o Options) *Table {
	t.Helper()
	table := NewTable(o)
	t.Cleanup(table.Close)
	return table
}

// closes records what CloseBackend was called with.
type closes struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (c *closes) call(server string, b *Backend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, server+":"+b.ID)
}

func (c *closes) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.all...)
}

// K10, K11: ids are unique, and a client that connects again gets a new one.
func TestIDsAreUnique(t *testing.T) {
	table := newTable(t, Options{})
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				s, token := table.New(Claims{Principal: "p"})
				mu.Lock()
				assert.False(t, seen[token] || seen[s.Claims().ID.String()])
				seen[token], seen[s.Claims().ID.String()] = true, true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen, 8000)
	assert.Zero(t, table.Len(), "opening a session costs no memory")
}

func TestFindAdoptsAfterRestart(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	load := func() *Keyring {
		k, err := LoadKeyring(keys)
		require.NoError(t, err)
		return k
	}
	c := Claims{Revision: 3, Capabilities: 0xdeadbeef, Principal: "iss|é", VirtualServer: "ns/x"}
	first, token := newTable(t, Options{Keys: load()}).New(c)
	assert.Equal(t, token, first.Token())
	s, err := newTable(t, Options{Keys: load()}).Find(token, "iss|é")
	require.NoError(t, err)
	assert.Equal(t, first.Claims(), s.Claims())
	c.ID, c.Expires = s.Claims().ID, s.Claims().Expires
	assert.Equal(t, c, *s.Claims())
	assert.NotZero(t, c.ID)
	assert.Equal(t, token, s.Token())
}

func TestFindRefuses(t *testing.T) {
	table := newTable(t, Options{})
	s, token := table.New(Claims{Principal: "alice"})
	check := func() {
		for _, c := range []struct{ token, principal string }{
			{token, "bob"},
			{token, ""},
			{"", "alice"},
			{"forged", "alice"},
			{token[:len(token)-1], "alice"},
			{token + "A", "alice"},
			{strings.ToUpper(token), "alice"},
			{table.opt.Keys.Seal(PurposeRecover, s.Claims().append(nil)), "alice"},
			{table.opt.Keys.Seal(PurposeSession, []byte("no claims")), "alice"},
			{table.opt.Keys.Seal(PurposeSession, append(s.Claims().append(nil), 0)), "alice"},
		} {
			_, err := table.Find(c.token, c.principal)
			assert.ErrorIs(t, err, ErrUnknown, "%+v", c)
		}
	}
	check()
	defer s.Hold()() // and once it is in memory
	require.Equal(t, 1, table.Len())
	check()
	_, err := table.Find(token, "alice")
	require.NoError(t, err)
}

func TestLongClaims(t *testing.T) {
	table := newTable(t, Options{})
	long := strings.Repeat("é", MaxClaim)
	_, token := table.New(Claims{Principal: long, VirtualServer: long})
	assert.LessOrEqual(t, len(token), MaxToken)
	_, err := table.Find(token, long)
	require.NoError(t, err)
	for _, other := range []string{long + "x", long[:MaxClaim], digest(long)[1:]} {
		_, err = table.Find(token, other)
		require.ErrorIs(t, err, ErrUnknown)
	}
	full := strings.Repeat("x", MaxClaim)
	_, token = table.New(Claims{Principal: full, VirtualServer: full})
	s, err := table.Find(token, full)
	require.NoError(t, err)
	assert.Equal(t, full, s.Claims().VirtualServer)
	// A recovery context holds the token, and must still open.
	assert.LessOrEqual(t, len(token)+100, MaxPlain)
}

func TestEndIsForEver(t *testing.T) {
	dir := t.TempDir()
	keys := NewKeyring(keyOf(1))
	tombs := openTombs(t, filepath.Join(dir, "ended"), time.Now())
	var closed closes
	table := newTable(t, Options{Keys: keys, Tombstones: tombs, CloseBackend: closed.call})
	s, token := table.New(Claims{})
	bystander, _ := table.New(Claims{})
	release := s.Hold()
	done := s.Done()
	openOne(t, s, "a", "1")
	openOne(t, bystander, "a", "2")
	handle, err := table.Find(token, "")
	require.NoError(t, err)

	require.NoError(t, table.End(handle))
	<-done
	<-s.Done()
	release()
	_, err = table.Find(token, "")
	require.ErrorIs(t, err, ErrEnded)
	_, err = s.OpenBackend(t.Context(), "a", "e", nil, nil)
	require.ErrorIs(t, err, ErrEnded)
	_, ok := s.Backend("a", "e")
	assert.False(t, ok)
	s.Hold()()
	assert.Equal(t, 1, table.Len())
	require.Eventually(t, func() bool { return len(closed.list()) == 1 }, time.Second, time.Millisecond)
	assert.Equal(t, []string{"a:1"}, closed.list())

	reborn := newTable(t, Options{Keys: keys, Tombstones: openTombs(t, filepath.Join(dir, "ended"), time.Now())})
	_, err = reborn.Find(token, "")
	require.ErrorIs(t, err, ErrEnded)
	_, err = reborn.Find(bystander.Token(), "")
	require.NoError(t, err)
}

func TestLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{Lifetime: time.Hour, IdleTimeout: time.Minute})
		defer table.Close()
		s, token := table.New(Claims{})
		_, idle := table.New(Claims{})
		defer s.Hold()()
		done := s.Done()
		time.Sleep(time.Hour - time.Second)
		_, err := table.Find(token, "")
		require.NoError(t, err)
		time.Sleep(time.Second)
		for _, tok := range []string{token, idle} {
			_, err = table.Find(tok, "")
			require.ErrorIs(t, err, ErrExpired)
		}
		<-done // the sweeper ends it though it is held
		assert.Zero(t, table.Len())
	})
}

func TestIdleExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closes
		table := NewTable(Options{IdleTimeout: time.Minute, CloseBackend: closed.call})
		defer table.Close()
		idle, token := table.New(Claims{})
		busy, _ := table.New(Claims{})
		held, _ := table.New(Claims{})
		for i, s := range []*Session{idle, busy, held} {
			openOne(t, s, "a", fmt.Sprint(i))
		}
		release := held.Hold()
		for range 8 {
			time.Sleep(10 * time.Second)
			_, ok := busy.Backend("a", "e")
			assert.True(t, ok)
		}
		synctest.Wait()
		assert.Equal(t, []string{"a:0"}, closed.list())
		assert.Equal(t, 2, table.Len())

		// The id stays valid: the next call opens another backend session.
		s, err := table.Find(token, "")
		require.NoError(t, err)
		_, ok := s.Backend("a", "e")
		assert.False(t, ok)
		openOne(t, s, "a", "again")
		_, ok = idle.Backend("a", "e")
		assert.True(t, ok, "all handles are the same session")

		release()
		release() // once is enough
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Zero(t, table.Len())
		assert.ElementsMatch(t, []string{"a:0", "a:1", "a:2", "a:again"}, closed.list())
	})
}

func TestHoldsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{IdleTimeout: time.Minute})
		defer table.Close()
		s, _ := table.New(Claims{})
		one, other := s.Hold(), s.Hold()
		one()
		one()
		time.Sleep(time.Hour)
		assert.Equal(t, 1, table.Len(), "the other still holds it")
		other()
		time.Sleep(time.Hour)
		assert.Zero(t, table.Len())
	})
}

func TestEvictsTheLeastRecentlyUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{})
		defer table.Close()
		sh := &table.shards[0]
		var inShard []*Session
		for len(inShard) < 5 {
			s, token := table.New(Claims{})
			if table.shard(token) == sh {
				openOne(t, s, "a", "1")
				inShard = append(inShard, s)
				time.Sleep(time.Second)
			}
		}
		inShard[0].Backend("a", "e")
		for _, victim := range []int{1, 2, 3, 4, 0} {
			assert.NotEmpty(t, inShard[victim].Backends())
			require.True(t, table.evict(sh))
			assert.Empty(t, inShard[victim].Backends())
		}
		assert.False(t, table.evict(sh))
	})
}

func TestFindIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{IdleTimeout: time.Minute})
		defer table.Close()
		s, token := table.New(Claims{})
		openOne(t, s, "a", "1")
		for range 5 {
			time.Sleep(40 * time.Second)
			_, err := table.Find(token, "")
			require.NoError(t, err)
		}
		assert.Equal(t, 1, table.Len())
	})
}

func TestMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closes
		table := NewTable(Options{MaxSessions: 3, CloseBackend: closed.call})
		defer table.Close()
		held, _ := table.New(Claims{})
		openOne(t, held, "a", "held")
		release := held.Hold()
		for i := range 50 {
			time.Sleep(time.Second)
			s, _ := table.New(Claims{})
			openOne(t, s, "a", fmt.Sprint(i))
			assert.LessOrEqual(t, table.Len(), 3)
			_, ok := s.Backend("a", "e")
			assert.True(t, ok, "the newest is never the victim")
		}
		_, ok := held.Backend("a", "e")
		assert.True(t, ok, "what is held is never the victim")
		synctest.Wait()
		assert.Len(t, closed.list(), 48)
		release()
	})
}

func TestMaxSessionsAllHeld(t *testing.T) {
	table := newTable(t, Options{MaxSessions: 1})
	for range 3 {
		s, _ := table.New(Claims{})
		defer s.Hold()()
	}
	assert.Equal(t, 3, table.Len(), "nothing that is held is taken away")
}

func TestDropServer(t *testing.T) {
	var closed closes
	table := newTable(t, Options{CloseBackend: closed.call})
	s, _ := table.New(Claims{})
	openOne(t, s, "a", "1")
	openOne(t, s, "b", "2")
	table.DropServer("a")
	require.Eventually(t, func() bool { return len(closed.list()) == 1 }, time.Second, time.Millisecond)
	assert.Equal(t, []string{"a:1"}, closed.list())
	all := s.Backends()
	require.Len(t, all, 1)
	assert.Equal(t, "2", all["b"].ID)
}

// The order is: tombstone, then the entry. Whatever the interleaving, nothing
// comes to life after End.
func TestEndRaces(t *testing.T) {
	var closed closes
	table := NewTable(Options{CloseBackend: closed.call})
	opened := 0
	for range 300 {
		s, _ := table.New(Claims{})
		var wg sync.WaitGroup
		var got bool
		wg.Go(func() {
			_, err := s.OpenBackend(t.Context(), "a", "e", nil, opener("x"))
			got = err == nil
		})
		wg.Go(func() { assert.NoError(t, table.End(s)) })
		wg.Wait()
		if got {
			opened++
		}
		_, ok := s.Backend("a", "e")
		assert.False(t, ok)
	}
	assert.Zero(t, table.Len())
	require.Eventually(t, func() bool { return len(closed.list()) >= opened }, time.Second, time.Millisecond)
	table.Close()
}

// A marked token is the same session under one spelling only.
func TestMarkedTokens(t *testing.T) {
	table := NewTable(Options{Marked: 6, Mark: "b."})
	defer table.Close()
	_, plain := table.New(Claims{Capabilities: 1})
	_, marked := table.New(Claims{Capabilities: 3})
	require.False(t, strings.HasPrefix(plain, "b."))
	require.True(t, strings.HasPrefix(marked, "b."))
	for _, token := range []string{plain, marked} {
		_, err := table.Find(token, "")
		require.NoError(t, err)
	}
	for _, token := range []string{"b." + plain, strings.TrimPrefix(marked, "b."), "b." + marked} {
		_, err := table.Find(token, "")
		require.ErrorIs(t, err, ErrUnknown)
	}
}
