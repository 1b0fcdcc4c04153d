package session

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"patchbay.dev/internal/atomicfile"
)

// Limits of a key file.
const (
	maxKeyFile = 64 << 10
	maxKeys    = 64
)

const keyFileHeader = "# Patchbay session keys, one per line (32 bytes in base64). The first seals, all open.\n" +
	"# To rotate, put a new line first; remove the old one when its sessions have expired.\n"

// LoadKeyring reads the keys from the file at path: one a line, 32 bytes in
// standard base64, the first one seals, all open; lines that start with # are
// comments. A missing file is created with a random key, mode 0600; when two
// processes do so at once, both end up with the same key. A file that its group
// or others can read or write is refused.
func LoadKeyring(path string) (*Keyring, error) {
	data, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKeyFile(path); err != nil {
			return nil, fmt.Errorf("create the session keys: %w", err)
		}
		data, err = readKeyFile(path)
	}
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(path, data)
	if err != nil {
		return nil, err
	}
	return NewKeyring(keys...), nil
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the session keys: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the session keys: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file; name a file for the session keys", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: mode %04o lets others read the session keys; run: chmod 600 %s",
			path, info.Mode().Perm(), path)
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("%s: larger than %d bytes; this is no file of session keys", path, maxKeyFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the session keys: %w", err)
	}
	return data, nil
}

func parseKeys(path string, data []byte) ([][32]byte, error) {
	var keys [][32]byte
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		// The text of a bad line stays out of the message: it may be most of a key.
		raw, err := base64.StdEncoding.Strict().DecodeString(string(line))
		if err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("%s:%d: not a key; a key is 32 bytes in base64, as \"openssl rand -base64 32\" prints it", path, n)
		}
		if len(keys) == maxKeys {
			return nil, fmt.Errorf("%s:%d: more than %d keys; remove the oldest", path, n, maxKeys)
		}
		keys = append(keys, [32]byte(raw))
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key in it; remove the file to have one made, or add a line from \"openssl rand -base64 32\"", path)
	}
	return keys, nil
}

// createKeyFile makes the file with one random key, unless somebody else was
// faster.
func createKeyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	text := keyFileHeader + base64.StdEncoding.EncodeToString(secret[:]) + "\n"
	if err := atomicfile.Create(path, []byte(text)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
