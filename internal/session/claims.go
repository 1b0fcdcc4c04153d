package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// ID names a session. It is random, and inside the sealed token only.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MaxClaim is how many bytes of Principal and VirtualServer fit into an id.
const MaxClaim = 320

// Claims are what a session id carries.
type Claims struct {
	ID ID
	// Revision is mcp.Revision.Ordinal of the negotiated revision.
	Revision uint8
	// Capabilities are the client's, one bit each; the broker says which.
	Capabilities uint32
	// Principal is who opened the session: nobody else can use it. A longer
	// one than MaxClaim is replaced by its digest.
	Principal string
	// VirtualServer is the virtual server that the session is for. A longer
	// one than MaxClaim is replaced by its digest, which names none.
	VirtualServer string
	// Expires is when the id ends to be valid, in whole seconds.
	Expires time.Time
}

const claimsVersion = 1

// digest stands for a text that is too long. It cannot be mistaken for another
// text: 0xff occurs in no UTF-8.
func digest(s string) string {
	if len(s) <= MaxClaim {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "\xff" + hex.EncodeToString(sum[:])
}

// append appends the binary form: version, id, revision, capabilities, expiry,
// and the two texts with their lengths before them; integers big endian.
func (c *Claims) append(b []byte) []byte {
	b = append(b, claimsVersion)
	b = append(b, c.ID[:]...)
	b = append(b, c.Revision)
	b = binary.BigEndian.AppendUint32(b, c.Capabilities)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Expires.Unix()))
	b = appendText(b, c.Principal)
	return appendText(b, c.VirtualServer)
}

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s))) // at most MaxClaim
	return append(b, s...)
}

// parse is the inverse of append. It fails on a form of another version.
func (c *Claims) parse(b []byte) error {
	const fixed = 1 + 16 + 1 + 4 + 8
	if len(b) < fixed || b[0] != claimsVersion {
		return ErrUnknown
	}
	c.ID = ID(b[1:])
	c.Revision = b[17]
	c.Capabilities = binary.BigEndian.Uint32(b[18:])
	c.Expires = time.Unix(int64(binary.BigEndian.Uint64(b[22:])), 0)
	b, ok1 := cutText(b[fixed:], &c.Principal)
	b, ok2 := cutText(b, &c.VirtualServer)
	if !ok1 || !ok2 || len(b) != 0 {
		return ErrUnknown
	}
	return nil
}

func cutText(b []byte, s *string) (rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, false
	}
	*s = string(b[2 : 2+n])
	return b[2+n:], true
}
