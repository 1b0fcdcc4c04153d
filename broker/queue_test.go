package broker

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQueue(t *testing.T) {
	t.Run("in order, a token for each", func(t *testing.T) {
		q := newQueue()
		for i := range streamQueue {
			require.True(t, q.room())
			q.put(fmt.Append(nil, i))
		}
		assert.False(t, q.room(), "it is full")
		for i := range streamQueue {
			<-q.ready
			assert.Equal(t, fmt.Sprint(i), string(q.take()))
			assert.True(t, q.room())
		}
		assert.Empty(t, q.ready)
		assert.Nil(t, q.waiting, "a quiet stream holds nothing")
		assert.Zero(t, q.bytes)
		assert.Nil(t, q.take())
	})
	t.Run("bytes", func(t *testing.T) {
		q := newQueue()
		q.put(bytes.Repeat([]byte("x"), queueBytes+1)) // one may be of any size
		assert.False(t, q.room())
		<-q.ready
		assert.Len(t, q.take(), queueBytes+1)
		assert.True(t, q.room())
	})
}
