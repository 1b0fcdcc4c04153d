package session

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// flight is one opening of a backend session that all who need it wait for.
// live.mu guards what may change; backend and err may be read once done is
// closed.
type flight struct {
	server, epoch string
	cancel        context.CancelFunc
	done          chan struct{}
	backend       *Backend
	err           error
	waiting       int  // guarded by live.mu
	abandoned     bool // guarded by live.mu: all have left, nobody may join
	dropped       bool // guarded by live.mu: the server was removed
}

// PanicError is the error of OpenBackend when open panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return "session: panic while a backend session was opened"
}

var errNoBackend = errors.New("session: open gave neither a backend session nor an error")

// OpenBackend returns the session with server of this epoch, or makes one by
// calling open: once, however many callers arrive together. A session of another
// epoch is closed and replaced. dead is a session that the caller found to be
// lost: if it is still the present one (the same pointer, or the same id), it is
// forgotten, without CloseBackend, and replaced.
//
// open runs on a goroutine of its own, with the values of the first caller's ctx.
// It is cancelled when all its callers are gone or the table closes, must bound
// its own time, and sets Epoch in what it returns. Its error goes to all who wait,
// and is not kept.
//
// The error is open's, ctx's, ErrEnded when the session has ended, ErrDropped
// when the server was removed meanwhile, ErrClosed, or a [*PanicError].
func (s *Session) OpenBackend(ctx context.Context, server, epoch string, dead *Backend,
	open func(context.Context) (*Backend, error),
) (*Backend, error) {
	l, err := s.table.entry(s)
	if err != nil {
		return nil, err
	}
	defer l.release(s.table)
	for {
		b, f, joined, err := l.board(ctx, s.table, server, epoch, dead, open)
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-f.done:
			if joined {
				return f.backend, f.err
			}
		case <-ctx.Done():
			if joined {
				l.leave(f)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// board returns the present session, or the flight to wait for; joined tells
// whether its outcome is the caller's, or only the end of it is to be awaited.
func (l *live) board(ctx context.Context, t *Table, server, epoch string, dead *Backend,
	open func(context.Context) (*Backend, error),
) (b *Backend, f *flight, joined bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, nil, false, ErrEnded
	}
	switch b = l.backendLocked(server); {
	case b == nil:
	case b.is(dead):
		l.takeLocked(server)
	case b.Epoch != epoch:
		t.closer.add(server, l.takeLocked(server))
	default:
		return b, nil, false, nil
	}
	i := slices.IndexFunc(l.flights, func(f *flight) bool { return f.server == server })
	if i < 0 {
		f, err = l.startLocked(ctx, t, server, epoch, open)
		return nil, f, true, err
	}
	f = l.flights[i]
	if f.epoch != epoch || f.abandoned || f.dropped {
		return nil, f, false, nil
	}
	f.waiting++
	return nil, f, true, nil
}

// is tells whether b is the session that a caller found dead. A server without
// session ids has nothing that could be lost, so an empty id says nothing.
func (b *Backend) is(dead *Backend) bool {
	return dead != nil && (b == dead || b.ID != "" && b.ID == dead.ID)
}

// startLocked starts a flight with one caller waiting. l.mu is held.
func (l *live) startLocked(ctx context.Context, t *Table, server, epoch string,
	open func(context.Context) (*Backend, error),
) (*flight, error) {
	if !t.begin() {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{server: server, epoch: epoch, cancel: cancel, done: make(chan struct{}), waiting: 1}
	l.flights = append(l.flights, f)
	l.holds++
	go func() {
		defer t.wg.Done()
		defer context.AfterFunc(t.running, cancel)()
		l.fly(ctx, t, f, open)
	}()
	return f, nil
}

// fly calls open and lands, also when open panics or ends its goroutine.
func (l *live) fly(ctx context.Context, t *Table, f *flight, open func(context.Context) (*Backend, error)) {
	var b *Backend
	err := errNoBackend
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, &PanicError{Value: p, Stack: debug.Stack()}
		}
		l.land(t, f, b, err)
	}()
	b, err = open(ctx)
	switch {
	case err != nil:
		b, err = nil, fmt.Errorf("open a session with %s: %w", f.server, err)
	case b == nil:
		err = errNoBackend
	}
}

// land puts what was opened into the entry, or closes it when nobody may have it
// any more, and tells those who wait.
func (l *live) land(t *Table, f *flight, b *Backend, err error) {
	f.cancel()
	l.mu.Lock()
	l.holds--
	l.flights = slices.DeleteFunc(l.flights, func(x *flight) bool { return x == f })
	switch {
	case err != nil:
	case l.ended:
		err = ErrEnded
	case f.dropped:
		err = ErrDropped
	default:
		l.backends = append(l.backends, slot{f.server, b})
	}
	if err != nil && b != nil {
		t.closer.add(f.server, b)
		b = nil
	}
	f.backend, f.err = b, err
	l.mu.Unlock()
	close(f.done)
}

// leave tells a flight that one caller does not wait any more.
func (l *live) leave(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.abandoned = true
		f.cancel()
	}
}
