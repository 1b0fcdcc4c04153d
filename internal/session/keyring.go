package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
)

// The errors of ids. A stranger learns no more than which of these it is.
var (
	// ErrUnknown: forged, altered, cut off, sealed with other keys or for
	// another purpose, or opened by another principal.
	ErrUnknown = errors.New("session: unknown id")
	// ErrEnded: the session was ended by DELETE.
	ErrEnded = errors.New("session: ended")
	// ErrExpired: the id is older than the sessions' lifetime.
	ErrExpired = errors.New("session: expired")
	// ErrClosed: the table is closed; the process is about to end.
	ErrClosed = errors.New("session: table closed")
	// ErrDropped: the server was removed while its backend session was opened.
	ErrDropped = errors.New("session: server removed")
)

// Purpose is what a sealed value is for. It is authenticated with the value: what
// was sealed for one purpose never opens for another. The numbers are in values
// that clients keep: never change one.
type Purpose byte

// The purposes.
const (
	// PurposeSession seals session ids.
	PurposeSession Purpose = 1
	// PurposeRecover seals the context of a direct call that Envoy retries at
	// the broker.
	PurposeRecover Purpose = 2
	// PurposeRequest seals the ids under which a backend's requests reach a
	// client.
	PurposeRequest Purpose = 3
	// PurposeCursor seals the cursors of lists.
	PurposeCursor Purpose = 4
)

// A token is base64url, without padding, of
//
//	version (1 byte) | key id (4) | nonce (12) | ciphertext | tag (16)
//
// The additional data are the version, the key id and the purpose.
const (
	tokenVersion = 1
	headerLen    = 1 + keyIDLen
	keyIDLen     = 4
	sealOverhead = headerLen + 12 + 16

	// MaxToken is the longest token, in bytes, that can open.
	MaxToken = 2 << 10
	// MaxPlain is the longest plain text, in bytes, whose token can open.
	MaxPlain = MaxToken/4*3 - sealOverhead
)

// encoding refuses unused bits that are not zero: each value has one spelling.
var encoding = base64.RawURLEncoding.Strict()

type key struct {
	id   [keyIDLen]byte
	aead cipher.AEAD // draws its own random nonce
}

// Keyring seals with its first key and opens with all. It does not change.
//
// Nonces are random, so one key should seal no more than 2^32 values (NIST SP
// 800-38D, section 8.3): at 1,000 recovery contexts a second, a new first key
// every six weeks.
type Keyring struct {
	keys    []key
	scratch sync.Pool // of *scratch; a cache, it holds nothing that matters
}

// scratch is the memory of one sealing or opening. It would escape to the heap
// each time, through the AEAD's interface.
type scratch struct {
	token, raw [MaxToken]byte
	aad        [headerLen + 1]byte
	plain      [MaxPlain]byte
}

func (k *Keyring) get() *scratch {
	if sc, ok := k.scratch.Get().(*scratch); ok {
		return sc
	}
	return new(scratch)
}

func (sc *scratch) additional(header []byte, p Purpose) []byte {
	copy(sc.aad[:], header[:headerLen])
	sc.aad[headerLen] = byte(p)
	return sc.aad[:]
}

// NewKeyring makes a keyring of keys, the sealing one first. Without any it can
// neither seal nor open: Seal gives values that nothing opens.
func NewKeyring(keys ...[32]byte) *Keyring {
	k := &Keyring{keys: make([]key, 0, len(keys))}
	for _, secret := range keys {
		block, err := aes.NewCipher(secret[:])
		if err != nil {
			continue // cannot happen: the length is right
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			continue // cannot happen: AES has the block size of GCM
		}
		sum := sha256.Sum256(append([]byte("patchbay key id\x00"), secret[:]...))
		k.keys = append(k.keys, key{[keyIDLen]byte(sum[:]), aead})
	}
	return k
}

// Seal encrypts and authenticates plain, at most MaxPlain bytes, for the purpose.
// Two calls never give the same token.
func (k *Keyring) Seal(p Purpose, plain []byte) string {
	return string(k.AppendSeal(nil, p, plain))
}

// AppendSeal appends what Seal returns to dst.
func (k *Keyring) AppendSeal(dst []byte, p Purpose, plain []byte) []byte {
	if len(k.keys) == 0 {
		return dst
	}
	sc := k.get()
	defer k.scratch.Put(sc)
	active := &k.keys[0]
	raw := append(append(sc.raw[:0], tokenVersion), active.id[:]...)
	raw = active.aead.Seal(raw, nil, plain, sc.additional(raw, p))
	return encoding.AppendEncode(dst, raw)
}

// AppendOpen appends the plain text of token, which must have been sealed for
// the purpose, to dst. It fails with ErrUnknown and leaves dst as it was.
func (k *Keyring) AppendOpen(dst []byte, p Purpose, token string) ([]byte, error) {
	sc := k.get()
	defer k.scratch.Put(sc)
	plain, err := k.open(sc, p, token)
	return append(dst, plain...), err
}

// openClaims opens a session id.
func (k *Keyring) openClaims(token string, c *Claims) error {
	sc := k.get()
	defer k.scratch.Put(sc)
	plain, err := k.open(sc, PurposeSession, token)
	if err != nil {
		return err
	}
	return c.parse(plain)
}

// open returns the plain text, in sc's memory.
func (k *Keyring) open(sc *scratch, p Purpose, token string) ([]byte, error) {
	// The decoder skips line breaks, which would be another spelling.
	if len(token) > MaxToken || strings.ContainsAny(token, "\r\n") {
		return nil, ErrUnknown
	}
	n := copy(sc.token[:], token)
	raw, err := encoding.AppendDecode(sc.raw[:0], sc.token[:n])
	if err != nil || len(raw) < sealOverhead || raw[0] != tokenVersion {
		return nil, ErrUnknown
	}
	for i := range k.keys {
		if [keyIDLen]byte(raw[1:headerLen]) != k.keys[i].id {
			continue
		}
		plain, err := k.keys[i].aead.Open(sc.plain[:0], nil, raw[headerLen:], sc.additional(raw, p))
		if err == nil {
			return plain, nil
		}
	}
	return nil, ErrUnknown
}
