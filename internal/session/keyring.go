package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
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

// Keyring seals with its first key and opens with all. It is immutable.
//
// Nonces are random, so one key should seal no more than 2^32 values (NIST SP
// 800-38D, section 8.3): at 1,000 recovery contexts a second, a new first key
// every six weeks.
type Keyring struct {
	keys []key
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
	active := &k.keys[0]
	raw := make([]byte, headerLen, sealOverhead+len(plain))
	raw[0] = tokenVersion
	copy(raw[1:], active.id[:])
	aad := additional(raw, p)
	raw = active.aead.Seal(raw, nil, plain, aad[:])
	return encoding.AppendEncode(dst, raw)
}

// AppendOpen appends the plain text of token, which must have been sealed for
// the purpose, to dst. It fails with ErrUnknown and leaves dst as it was.
func (k *Keyring) AppendOpen(dst []byte, p Purpose, token string) ([]byte, error) {
	// The decoder skips line breaks, which would be another spelling.
	if len(token) > MaxToken || strings.ContainsAny(token, "\r\n") {
		return dst, ErrUnknown
	}
	var stack [512]byte // enough for common tokens
	raw, err := encoding.AppendDecode(stack[:0], []byte(token))
	if err != nil || len(raw) < sealOverhead || raw[0] != tokenVersion {
		return dst, ErrUnknown
	}
	aad := additional(raw, p)
	for i := range k.keys {
		if [keyIDLen]byte(raw[1:headerLen]) != k.keys[i].id {
			continue
		}
		if out, err := k.keys[i].aead.Open(dst, nil, raw[headerLen:], aad[:]); err == nil {
			return out, nil
		}
	}
	return dst, ErrUnknown
}

func additional(header []byte, p Purpose) (aad [headerLen + 1]byte) {
	copy(aad[:], header[:headerLen])
	aad[headerLen] = byte(p)
	return aad
}
