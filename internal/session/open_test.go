package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// opener opens a session with the id in epoch e.
func opener(id string) func(context.Context) (*Backend, error) {
	return func(context.Context) (*Backend, error) { return &Backend{ID: id, Epoch: "e"}, nil }
}

func openOne(t *testing.T, s *Session, server, id string) *Backend {
	t.Helper()
	b, err := s.OpenBackend(t.Context(), server, "e", nil, opener(id))
	require.NoError(t, err)
	return b
}

// K5: one backend session for all calls of a client session, another one for
// another client session.
func TestBackendIsReused(t *testing.T) {
	table := newTable(t, Options{})
	s, token := table.New(Claims{})
	b := openOne(t, s, "a", "1")
	assert.Same(t, b, openOne(t, s, "a", "2"))
	again, err := table.Find(token, "")
	require.NoError(t, err)
	assert.Same(t, b, openOne(t, again, "a", "3"))
	got, ok := again.Backend("a", "e")
	assert.True(t, ok)
	assert.Same(t, b, got)
	assert.Equal(t, "4", openOne(t, again, "b", "4").ID)
	other, _ := table.New(Claims{})
	_, ok = other.Backend("a", "e")
	assert.False(t, ok)
	assert.Equal(t, "5", openOne(t, other, "a", "5").ID)
}

func TestOpenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{})
		defer table.Close()
		_, token := table.New(Claims{})
		var calls atomic.Int32
		answer := make(chan struct{})
		var wg sync.WaitGroup
		results := make([]*Backend, 100)
		for i := range results {
			s, err := table.Find(token, "") // each has a handle of its own
			require.NoError(t, err)
			wg.Go(func() {
				var err error
				results[i], err = s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) {
					calls.Add(1)
					<-answer
					return &Backend{ID: "1", Epoch: "e"}, nil
				})
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		close(answer)
		wg.Wait()
		assert.EqualValues(t, 1, calls.Load())
		for _, b := range results {
			assert.Same(t, results[0], b)
		}
		assert.Equal(t, 1, table.Len())
	})
}

// One caller that gives up does not fail the others; when all have given up, the
// opening is cancelled, and the next caller starts anew.
func TestOpenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closes
		table := NewTable(Options{CloseBackend: closed.call})
		defer table.Close()
		s, _ := table.New(Claims{})
		answer := make(chan string)
		open := func(ctx context.Context) (*Backend, error) {
			select {
			case id := <-answer:
				return &Backend{ID: id, Epoch: "e"}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		type outcome struct {
			b   *Backend
			err error
		}
		call := func(ctx context.Context) chan outcome {
			out := make(chan outcome, 1)
			go func() {
				b, err := s.OpenBackend(ctx, "a", "e", nil, open)
				out <- outcome{b, err}
			}()
			synctest.Wait()
			return out
		}
		ctx1, cancel1 := context.WithCancel(t.Context())
		first, second := call(ctx1), call(t.Context())
		cancel1()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		answer <- "1"
		got := <-second
		require.NoError(t, got.err)
		assert.Equal(t, "1", got.b.ID)

		table.DropServer("a")
		ctx2, cancel2 := context.WithCancel(t.Context())
		lonely := call(ctx2)
		cancel2()
		require.ErrorIs(t, (<-lonely).err, context.Canceled)
		synctest.Wait() // open was cancelled
		next := call(t.Context())
		answer <- "2"
		assert.Equal(t, "2", (<-next).b.ID)
	})
}

// Who comes after all others have given up does not get their cancellation.
func TestOpenAfterAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{})
		defer table.Close()
		s, _ := table.New(Claims{})
		slow := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan string, 1)
		go func() {
			_, err := s.OpenBackend(ctx, "a", "e", nil, func(ctx context.Context) (*Backend, error) {
				<-slow // notices its cancellation late
				return nil, ctx.Err()
			})
			first <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		go func() {
			b, err := s.OpenBackend(t.Context(), "a", "e", nil, opener("2"))
			assert.NoError(t, err)
			second <- b.ID
		}()
		synctest.Wait()
		close(slow)
		assert.Equal(t, "2", <-second)
	})
}

func TestOpenErrorIsNotKept(t *testing.T) {
	table := newTable(t, Options{})
	s, _ := table.New(Claims{})
	cause := errors.New("refused")
	_, err := s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) { return nil, cause })
	require.ErrorIs(t, err, cause)
	assert.Empty(t, s.Backends())
	assert.Equal(t, "1", openOne(t, s, "a", "1").ID)
}

func TestOpenSurvivesPanics(t *testing.T) {
	table := newTable(t, Options{})
	s, _ := table.New(Claims{})
	var p *PanicError
	_, err := s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) { panic("oops") })
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "oops", p.Value)
	assert.Contains(t, string(p.Stack), "open_test.go")
	_, err = s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) { runtime.Goexit(); return nil, nil })
	require.ErrorIs(t, err, errNoBackend)
	_, err = s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) { return nil, nil })
	require.ErrorIs(t, err, errNoBackend)
	openOne(t, s, "a", "1")
}

func TestOpenReplacesTheDead(t *testing.T) {
	var closed closes
	table := newTable(t, Options{CloseBackend: closed.call})
	s, _ := table.New(Claims{})
	first := openOne(t, s, "a", "1")
	replace := func(dead *Backend, id string) *Backend {
		b, err := s.OpenBackend(t.Context(), "a", "e", dead, opener(id))
		require.NoError(t, err)
		return b
	}
	second := replace(first, "2")
	assert.Equal(t, "2", second.ID)
	assert.Same(t, second, replace(first, "3"), "somebody else was faster")
	third := replace(&Backend{ID: "2"}, "3")
	assert.Equal(t, "3", third.ID, "the same id is the same session")
	none := replace(third, "")
	assert.Same(t, none, replace(&Backend{}, "4"), "no id says nothing")
	assert.Equal(t, "4", replace(none, "4").ID)
	table.Close()
	assert.Empty(t, closed.list(), "the dead need no DELETE")
}

// A hundred calls of a session meet its dead backend session at once.
func TestOpenReplacesTheDeadOnce(t *testing.T) {
	table := newTable(t, Options{})
	s, _ := table.New(Claims{})
	dead := openOne(t, s, "a", "dead")
	var calls atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			b, err := s.OpenBackend(t.Context(), "a", "e", dead, func(context.Context) (*Backend, error) {
				return &Backend{ID: fmt.Sprint(calls.Add(1)), Epoch: "e"}, nil
			})
			assert.NoError(t, err)
			assert.Equal(t, "1", b.ID)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, calls.Load())
}

func TestOpenReplacesAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed closes
		table := NewTable(Options{CloseBackend: closed.call})
		defer table.Close()
		s, _ := table.New(Claims{})
		openOne(t, s, "a", "old")
		_, ok := s.Backend("a", "new")
		assert.False(t, ok)
		b, err := s.OpenBackend(t.Context(), "a", "new", nil, func(context.Context) (*Backend, error) {
			return &Backend{ID: "fresh", Epoch: "new"}, nil
		})
		require.NoError(t, err)
		assert.Equal(t, "fresh", b.ID)
		synctest.Wait()
		assert.Equal(t, []string{"a:old"}, closed.list())
	})
}

// What is opened while its session ends, its server goes or the table closes is
// closed again: nothing leaks.
func TestOpenedInVain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*Table, *Session)
		want      error
	}{
		"end":  {func(table *Table, s *Session) { _ = table.End(s) }, ErrEnded},
		"drop": {func(table *Table, _ *Session) { table.DropServer("a") }, ErrDropped},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed closes
				table := NewTable(Options{CloseBackend: closed.call, IdleTimeout: time.Hour})
				defer table.Close()
				s, _ := table.New(Claims{})
				answer := make(chan struct{})
				result := make(chan error)
				go func() {
					_, err := s.OpenBackend(t.Context(), "a", "e", nil, func(context.Context) (*Backend, error) {
						<-answer
						return &Backend{ID: "1", Epoch: "e"}, nil
					})
					result <- err
				}()
				synctest.Wait()
				c.meanwhile(table, s)
				close(answer)
				require.ErrorIs(t, <-result, c.want)
				synctest.Wait()
				assert.Equal(t, []string{"a:1"}, closed.list())
				assert.Empty(t, s.Backends())
			})
		})
	}
}

func TestCloseCancelsOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(Options{})
		s, _ := table.New(Claims{})
		result := make(chan error, 1)
		go func() {
			_, err := s.OpenBackend(t.Context(), "a", "e", nil, func(ctx context.Context) (*Backend, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			result <- err
		}()
		synctest.Wait()
		table.Close()
		require.ErrorIs(t, <-result, context.Canceled)
		_, err := s.OpenBackend(t.Context(), "a", "e", nil, opener("1"))
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestCloseBackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, calls atomic.Int32
		gate := make(chan struct{})
		table := NewTable(Options{CloseBackend: func(string, *Backend) {
			most.Store(max(most.Load(), running.Add(1)))
			<-gate
			running.Add(-1)
			calls.Add(1)
		}})
		defer table.Close()
		for range 100 {
			s, _ := table.New(Claims{})
			openOne(t, s, "a", "1")
			require.NoError(t, table.End(s), "does not wait")
		}
		synctest.Wait()
		assert.EqualValues(t, maxClosing, running.Load())
		close(gate)
		synctest.Wait()
		assert.EqualValues(t, 100, calls.Load())
		assert.EqualValues(t, maxClosing, most.Load())
	})
}
