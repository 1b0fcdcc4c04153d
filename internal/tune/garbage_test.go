package tune

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 128 << 20: 50, 1 << 40: 50} {
		assert.Equal(t, want, percentFor(live), "of %d bytes", live)
	}
}

// TestPace makes much live, and lets it go again.
func TestPace(t *testing.T) {
	old := debug.SetGCPercent(gcPercent)
	t.Cleanup(func() { debug.SetGCPercent(old) })
	stop := pace()
	t.Cleanup(stop)
	percent := func() int {
		n := debug.SetGCPercent(gcPercent)
		debug.SetGCPercent(n)
		return n
	}
	live := make([]byte, 100<<20)
	// Collections are asked for until their finalizer has run.
	require.Eventually(t, func() bool { runtime.GC(); return percent() < 70 }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(live) // and not longer
	require.Eventually(t, func() bool { runtime.GC(); return percent() == gcPercent }, 10*time.Second, time.Millisecond)
}
