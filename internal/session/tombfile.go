package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"patchbay.dev/internal/atomicfile"
)

// alone calls f while no other process uses the file. A file of its own carries
// the lock, because the other one is replaced now and then. t.writing is held.
func (t *Tombstones) alone(f func() error) error {
	lock, err := os.OpenFile(t.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close() //nolint:errcheck // unlocks; nothing was written
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		}
	}
	if err != nil {
		return fmt.Errorf("lock the ended sessions: %w", err)
	}
	return f()
}

// loadLocked reads the file into memory. A last line without its end was torn by
// a crash before Add returned, and is left out. t.writing is held, and the lock.
func (t *Tombstones) loadLocked() error {
	data, err := os.ReadFile(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the ended sessions: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line[len(line)-1] != '\n' {
			break
		}
		x, ok := parseTomb(line[:len(line)-1])
		if !ok {
			return fmt.Errorf("%s:%d: not an ended session; remove the line, or the file to accept all ended sessions again", t.path, n)
		}
		t.insertLocked(x)
	}
	return nil
}

// appendLocked appends one line; the file is written anew when it has become
// much longer than what it says, when another process has replaced it, and after
// a write that failed. t.writing is held, and the lock.
func (t *Tombstones) appendLocked(x tomb) error {
	t.mu.RLock()
	live := len(t.order)
	t.mu.RUnlock()
	if t.torn || t.lines > 2*live+1024 || !t.wholeLocked() {
		return t.rewriteLocked()
	}
	t.torn = true
	_, err := t.file.Write(x.append(nil))
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the ended sessions: %w", err)
	}
	t.lines++
	t.torn = false
	return nil
}

// wholeLocked tells whether the open file is still the one of that name, and
// ends with a whole line, which another process may have failed to write.
func (t *Tombstones) wholeLocked() bool {
	open, err := t.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(t.path)
	if err != nil || !os.SameFile(open, named) {
		return false
	}
	if open.Size() == 0 {
		return true
	}
	var last [1]byte
	_, err = t.file.ReadAt(last[:], open.Size()-1)
	return (err == nil || errors.Is(err, io.EOF)) && last[0] == '\n'
}

// rewriteLocked replaces the file with what is in it and in memory. t.writing is
// held, and the lock.
func (t *Tombstones) rewriteLocked() error {
	if err := t.loadLocked(); err != nil {
		return err
	}
	t.mu.RLock()
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	lines := len(t.order)
	for _, x := range t.order {
		_, _ = w.Write(x.append(w.AvailableBuffer())) // to memory
	}
	_ = w.Flush()
	t.mu.RUnlock()
	err := atomicfile.Write(t.path, text.Bytes())
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(t.path, os.O_RDWR|os.O_APPEND, 0)
	}
	if err != nil {
		return fmt.Errorf("write the ended sessions: %w", err)
	}
	if t.file != nil {
		_ = t.file.Close() // its name is gone, and each line was synced
	}
	t.file, t.lines, t.torn = f, lines, false
	return nil
}
