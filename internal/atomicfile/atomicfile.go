// Package atomicfile replaces files so that a reader, or a start after a crash,
// finds the old content or the new one, whole. It keeps no state; writers of the
// same name may run at the same time, and the last one wins.
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
	if err := replace(path, data); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Temporary tells whether a file of this name is, or was before a crash, on its
// way to be renamed by Write.
func Temporary(name string) bool { return strings.Contains(name, infix) }

func replace(path string, data []byte) error {
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
		err = os.Rename(f.Name(), path)
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
