package session

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func keyOf(b byte) (k [32]byte) {
	for i := range k {
		k[i] = b
	}
	return k
}

func TestSealOpens(t *testing.T) {
	k := NewKeyring(keyOf(1))
	a, b := k.Seal(PurposeRecover, []byte("text")), k.Seal(PurposeRecover, []byte("text"))
	assert.NotEqual(t, a, b, "nonces are random")
	assert.NotContains(t, a, "=")
	out, err := k.AppendOpen([]byte("x:"), PurposeRecover, a)
	require.NoError(t, err)
	assert.Equal(t, "x:text", string(out))
	out, err = k.AppendOpen(nil, PurposeRecover, k.Seal(PurposeRecover, nil))
	require.NoError(t, err)
	assert.Empty(t, out)
}

func assertUnknown(t *testing.T, k *Keyring, p Purpose, token string) {
	t.Helper()
	out, err := k.AppendOpen([]byte("x"), p, token)
	assert.ErrorIs(t, err, ErrUnknown, "%q", token)
	assert.Equal(t, "x", string(out))
}

// A forged, altered or foreign id opens nothing.
func TestSealRefusesAlterations(t *testing.T) {
	k := NewKeyring(keyOf(1))
	token := k.Seal(PurposeSession, []byte("some claims"))
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for i := range raw {
		for _, flip := range []byte{1, 0x80, 0xff} {
			raw[i] ^= flip
			assertUnknown(t, k, PurposeSession, base64.RawURLEncoding.EncodeToString(raw))
			raw[i] ^= flip
		}
	}
	for i := range token {
		assertUnknown(t, k, PurposeSession, token[:i])
		assertUnknown(t, k, PurposeSession, token[i+1:])
		for _, c := range "Ab9-_=\n\r \x00é" {
			if other := token[:i] + string(c) + token[i+1:]; other != token {
				assertUnknown(t, k, PurposeSession, other)
			}
			assertUnknown(t, k, PurposeSession, token[:i]+string(c)+token[i:])
		}
	}
	assertUnknown(t, k, PurposeSession, token+"\n")
	assertUnknown(t, k, PurposeRecover, token)
	assertUnknown(t, NewKeyring(keyOf(2)), PurposeSession, token)
	assertUnknown(t, NewKeyring(), PurposeSession, token)
	assertUnknown(t, k, PurposeSession, strings.Repeat("A", MaxToken+1))
}

// The bits of the last character that carry nothing must be zero, else the same
// id would have several spellings.
func TestSealHasOneSpelling(t *testing.T) {
	k := NewKeyring(keyOf(1))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for n := range 3 { // all remainders of the length
		token := k.Seal(PurposeSession, make([]byte, n))
		opened := 0
		for _, c := range alphabet {
			if _, err := k.AppendOpen(nil, PurposeSession, token[:len(token)-1]+string(c)); err == nil {
				opened++
			}
		}
		assert.Equal(t, 1, opened, "%d bytes", n)
	}
}

func TestSealLimits(t *testing.T) {
	k := NewKeyring(keyOf(1))
	token := k.Seal(PurposeSession, make([]byte, MaxPlain))
	assert.LessOrEqual(t, len(token), MaxToken)
	_, err := k.AppendOpen(nil, PurposeSession, token)
	require.NoError(t, err)
	assertUnknown(t, k, PurposeSession, k.Seal(PurposeSession, make([]byte, MaxPlain+1)))
}

func TestKeyRotation(t *testing.T) {
	old := NewKeyring(keyOf(1)).Seal(PurposeSession, []byte("x"))
	rotated := NewKeyring(keyOf(2), keyOf(1))
	_, err := rotated.AppendOpen(nil, PurposeSession, old)
	require.NoError(t, err)
	fresh := rotated.Seal(PurposeSession, []byte("x"))
	removed := NewKeyring(keyOf(2))
	_, err = removed.AppendOpen(nil, PurposeSession, fresh)
	require.NoError(t, err, "the first key seals")
	assertUnknown(t, removed, PurposeSession, old)
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "keys")
	k, err := LoadKeyring(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "# "))
	again, err := LoadKeyring(path)
	require.NoError(t, err)
	_, err = again.AppendOpen(nil, PurposeSession, k.Seal(PurposeSession, []byte("x")))
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no temporary file stays")
}

func TestKeyFileRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	const racers = 16
	rings := make([]*Keyring, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			var err error
			rings[i], err = LoadKeyring(path)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	token := rings[0].Seal(PurposeSession, nil)
	for _, k := range rings {
		_, err := k.AppendOpen(nil, PurposeSession, token)
		require.NoError(t, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestKeyFileRefuses(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"short":     {"# x\n" + good + "\nAAAA\n", 0o600, "keys:3: not a key"},
		"no base64": {"secret!\n", 0o600, "keys:1: not a key"},
		"empty":     {"# only this\n\n", 0o600, "no key in it"},
		"group":     {good, 0o640, "chmod 600"},
		"world":     {good, 0o604, "chmod 600"},
		"many":      {strings.Repeat(good+"\n", maxKeys+1), 0o600, fmt.Sprintf("keys:%d: more than", maxKeys+1)},
		"large":     {strings.Repeat("#\n", maxKeyFile), 0o600, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			require.NoError(t, os.Chmod(path, c.mode))
			_, err := LoadKeyring(path)
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "secret", "the line may be most of a key")
		})
	}
	_, err := LoadKeyring(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
}

func FuzzOpen(f *testing.F) {
	k := NewKeyring(keyOf(1), keyOf(2))
	plain := []byte("some claims")
	f.Add(k.Seal(PurposeSession, plain), byte(1))
	f.Add(k.Seal(PurposeRecover, plain), byte(1))
	f.Add(NewKeyring(keyOf(3)).Seal(PurposeSession, plain), byte(1))
	f.Add("", byte(0))
	f.Fuzz(func(t *testing.T, token string, p byte) {
		var c Claims
		_ = c.parse([]byte(token)) // must not panic, whatever opens
		out, err := k.AppendOpen(nil, Purpose(p), token)
		if err != nil {
			require.ErrorIs(t, err, ErrUnknown)
			return
		}
		// Nobody can make one up: it must be a seed.
		require.Equal(t, string(plain), string(out))
	})
}
