// Package atomicfile makes and replaces files so that a reader, or a start after
// a crash, finds the old content or the new one, whole. It keeps no state; writers
// of the same name may run at the same time: the last Write wins, and the first
// Create.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// infix marks the names of files that are not finished.
const infix = ".tmp-"

// Write makes data, durably, the content of the file at path, mode 0600, whose
// directory must exist.
func Write(path string, data []byte) error {
	if err := put(path, data, os.Rename); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Create is Write where nothing has that name yet; else it changes nothing, and
// the error is an [fs.ErrExist].
func Create(path string, data []byte) error {
	// A link, unlike a rename, never takes the place of another process's file.
	if err := put(path, data, link); err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	return nil
}

func link(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from) // the name only
}

// Temporary tells whether a file of this name is, or was before a crash, on its
// way to get its name by Write or Create.
func Temporary(name string) bool { return strings.Contains(name, infix) }

// put writes a file of another name and gives it the name path by move, which
// leaves the other name where it fails.
func put(path string, data []byte, move func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+infix+"*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync() // else a crash may leave the name with no content
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = move(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // makes the name durable
}
