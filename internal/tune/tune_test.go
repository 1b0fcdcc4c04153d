package tune_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"patchbay.dev/internal/tune"
)

func TestProcess(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "2GiB")
	require.NoError(t, tune.Process())
	assert.Equal(t, 400, debug.SetGCPercent(100))
	assert.Equal(t, int64(math.MaxInt64), debug.SetMemoryLimit(-1), "GOMEMLIMIT has the last word")

	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "")
	require.NoError(t, tune.Process())
	assert.Equal(t, 100, debug.SetGCPercent(100), "GOGC has the last word")
	assert.Equal(t, int64(1<<30), debug.SetMemoryLimit(-1))

	// A chunk of 64 KiB and its message around it.
	assert.Equal(t, 128<<10, cap(*mem.DefaultBufferPool().Get(64<<10 + 100)))
}
