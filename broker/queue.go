package broker

import "sync"

// queue is what waits for one stream: events as they are sent, the oldest first.
// A quiet stream has none, and there are many of those, so room is made as events
// come.
type queue struct {
	ready chan struct{} // has a token while events wait

	mu      sync.Mutex
	waiting [][]byte // guarded by mu
	bytes   int      // guarded by mu: of all that wait
}

func newQueue() queue { return queue{ready: make(chan struct{}, 1)} }

// room tells whether one more event may wait. It may be of any size where none
// waits.
func (q *queue) room() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	return n == 0 || n < streamQueue && q.bytes < queueBytes
}

// put adds an event.
func (q *queue) put(e []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	q.bytes += len(e)
	q.signalLocked()
}

// take removes the oldest event and returns it; nil where none waits. Only who
// got the token of ready calls it.
func (q *queue) take() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	e := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	q.bytes -= len(e)
	if len(q.waiting) == 0 {
		q.waiting = nil // a quiet stream holds nothing
	} else {
		q.signalLocked()
	}
	return e
}

func (q *queue) signalLocked() {
	select {
	case q.ready <- struct{}{}:
	default: // it is there
	}
}
