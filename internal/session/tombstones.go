package session

import (
	"bytes"
	"container/heap"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// DefaultMaxTombstones bounds how many ended sessions are remembered: about
// 100 bytes of memory and 44 bytes of file each.
const DefaultMaxTombstones = 1 << 18

// Tombstones remembers ids that ended before their expiry, in a file if it has
// one: a line "id expiry" each (hex, Unix seconds), synced before Add returns.
// Processes with the same file keep each other's lines; they learn of them when
// they start.
type Tombstones struct {
	path string
	max  int
	now  func() time.Time

	// writing is held while the file is used, and taken before mu.
	writing sync.Mutex
	file    *os.File // guarded by writing; nil = memory only, or closed
	lines   int      // guarded by writing: lines in the file, as far as this process knows
	torn    bool     // guarded by writing: the file may end in half a line

	mu      sync.RWMutex
	has     map[ID]struct{} // guarded by mu
	order   tombHeap        // guarded by mu: the same ids, soonest expiry first
	dropped uint64          // guarded by mu
}

type tomb struct {
	id      ID
	expires int64 // Unix seconds
}

// tombHeap implements heap.Interface.
type tombHeap []tomb

func (h tombHeap) Len() int           { return len(h) }
func (h tombHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h tombHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *tombHeap) Push(x any)        { *h = append(*h, x.(tomb)) }
func (h *tombHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// OpenTombstones reads the file at path, leaves out what has expired, and keeps
// the file open for Add; a missing file is made. With path "" nothing outlives the
// process. Beyond DefaultMaxTombstones the one that expires first is forgotten and
// counted. now is the clock, nil means time.Now.
func OpenTombstones(path string, now func() time.Time) (*Tombstones, error) {
	return openTombstones(path, now, DefaultMaxTombstones)
}

func openTombstones(path string, now func() time.Time, limit int) (*Tombstones, error) {
	if now == nil {
		now = time.Now
	}
	t := &Tombstones{path: path, max: limit, now: now, has: map[ID]struct{}{}}
	if path == "" {
		return t, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("write the ended sessions: %w", err)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.alone(t.rewriteLocked); err != nil {
		return nil, err
	}
	return t, nil
}

func parseTomb(line []byte) (x tomb, ok bool) {
	id, expiry, _ := bytes.Cut(line, []byte(" "))
	if len(id) != hex.EncodedLen(len(x.id)) {
		return x, false
	}
	if _, err := hex.Decode(x.id[:], id); err != nil {
		return x, false
	}
	var err error
	x.expires, err = strconv.ParseInt(string(expiry), 10, 64)
	return x, err == nil
}

func (x tomb) append(b []byte) []byte {
	b = hex.AppendEncode(b, x.id[:])
	b = append(b, ' ')
	b = strconv.AppendInt(b, x.expires, 10)
	return append(b, '\n')
}

// insertLocked adds x, and forgets what expired or is too much.
func (t *Tombstones) insertLocked(x tomb) {
	now := t.now().Unix()
	if _, ok := t.has[x.id]; ok || x.expires <= now {
		return
	}
	t.has[x.id] = struct{}{}
	heap.Push(&t.order, x)
	for len(t.order) > 0 && (t.order[0].expires <= now || len(t.order) > t.max) {
		gone := heap.Pop(&t.order).(tomb)
		delete(t.has, gone.id)
		if gone.expires > now {
			t.dropped++
		}
	}
}

// Add remembers id until expires. It counts at once, also when the error says
// that it could not be written and so would not outlive the process.
func (t *Tombstones) Add(id ID, expires time.Time) error {
	x := tomb{id, expires.Unix()}
	t.mu.Lock()
	_, known := t.has[id]
	t.insertLocked(x)
	t.mu.Unlock()
	if t.path == "" || known {
		return nil
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.file == nil {
		return fmt.Errorf("write the ended sessions: %w", os.ErrClosed)
	}
	return t.alone(func() error { return t.appendLocked(x) })
}

// Has tells whether id has ended.
func (t *Tombstones) Has(id ID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.has[id]
	return ok
}

// Len is how many ended sessions are remembered.
func (t *Tombstones) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.order)
}

// Dropped is how many ended sessions were forgotten before their expiry, because
// there were too many.
func (t *Tombstones) Dropped() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.dropped
}

// Close closes the file. Add then works in memory and reports os.ErrClosed.
func (t *Tombstones) Close() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}
