package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"patchbay.dev/internal/session"
)

// What a session's calls without their client count for is free again when the
// session ends, or such calls would be refused one day.
func TestForgottenCallsAreNotCounted(t *testing.T) {
	table := session.NewTable(session.Options{Keys: session.NewKeyring([32]byte{1})})
	t.Cleanup(table.Close)
	c := newCallStreams(time.Hour)
	for _, givenUp := range []bool{true, false} {
		s, _ := table.New(session.Claims{Revision: 3})
		cancelled := 0
		st := c.open(s, []byte("1"), func() { cancelled++ })
		st.stamp([]byte("data: x\n\n"), false)
		st.detach()
		assert.Equal(t, 1, c.detached)
		c.forget(s.Claims().ID)
		assert.Equal(t, 1, cancelled)
		st.end(givenUp)
		assert.Zero(t, c.detached)
		assert.Zero(t, c.bytes)
		assert.Empty(t, c.sessions)
		assert.Zero(t, c.ended.Len())
	}
}
