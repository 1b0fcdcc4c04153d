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

// An answer that does not fit is told apart from nothing missed, and takes no
// room; an ended stream makes room for a running one.
func TestAnswerOverTheBound(t *testing.T) {
	table := session.NewTable(session.Options{Keys: session.NewKeyring([32]byte{1})})
	t.Cleanup(table.Close)
	c := newCallStreams(time.Hour)
	s, _ := table.New(session.Claims{Revision: 3})
	old := c.open(s, []byte("1"), func() {})
	old.stamp([]byte("data: x\n\n"), true)
	old.end(false)
	st := c.open(s, []byte("2"), func() {})
	st.stamp(make([]byte, maxCallBytes), true)
	assert.True(t, old.gone, "the oldest that has ended goes first")
	assert.Zero(t, st.bytes)
	st.end(false)

	at := callEvent{key: st.key}
	_, rd := c.attach(s.Claims().ID, at)
	assert.Equal(t, part{dropped: 1, over: true, lost: true}, st.next(rd))
	at.n = 1
	_, rd = c.attach(s.Claims().ID, at)
	assert.Equal(t, part{over: true}, st.next(rd), "nothing missed")
	at.n = 2
	none, _ := c.attach(s.Claims().ID, at)
	assert.Nil(t, none, "an event that there never was")
}
