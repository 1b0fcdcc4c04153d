package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var epoch = time.Unix(1_800_000_000, 0)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func openTombs(t *testing.T, path string, now time.Time) *Tombstones {
	t.Helper()
	ts, err := OpenTombstones(path, at(now))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ts.Close()) })
	return ts
}

func TestTombstonesOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	ts := openTombs(t, path, epoch)
	require.NoError(t, ts.Add(ID{1}, epoch.Add(time.Hour)))
	require.NoError(t, ts.Add(ID{2}, epoch.Add(time.Minute)))
	require.NoError(t, ts.Add(ID{1}, epoch.Add(time.Hour)), "twice is once")
	// No Close: the process is killed.
	again := openTombs(t, path, epoch.Add(2*time.Minute))
	assert.True(t, again.Has(ID{1}))
	assert.False(t, again.Has(ID{2}), "its id has expired")
	assert.False(t, again.Has(ID{3}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, ID{1}.String()+" 1800003600\n", string(text), "compacted")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestTombstonesTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	whole := ID{1}.String() + " 1800003600\n"
	torn := ID{3}.String() + " 1800003600\n"
	for n := 1; n < len(torn); n++ {
		require.NoError(t, os.WriteFile(path, []byte(whole+torn[:n]), 0o600))
		ts := openTombs(t, path, epoch)
		assert.True(t, ts.Has(ID{1}), "%d", n)
		assert.Equal(t, 1, ts.Len(), "%d", n)
		require.NoError(t, ts.Add(ID{4}, epoch.Add(time.Hour)))
		assert.Equal(t, 2, openTombs(t, path, epoch).Len(), "what follows a torn line is whole")
	}
}

func TestTombstonesBadLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	require.NoError(t, os.WriteFile(path, []byte(ID{1}.String()+" 1800003600\nhello\n"), 0o600))
	_, err := OpenTombstones(path, at(epoch))
	require.ErrorContains(t, err, "ended:2: not an ended session")
}

func TestTombstonesAreBounded(t *testing.T) {
	ts, err := openTombstones("", at(epoch), 3)
	require.NoError(t, err)
	for i, hours := range []int{5, 2, 4, 3, 6} {
		require.NoError(t, ts.Add(ID{byte(i)}, epoch.Add(time.Duration(hours)*time.Hour)))
	}
	assert.Equal(t, 3, ts.Len())
	assert.EqualValues(t, 2, ts.Dropped())
	assert.True(t, ts.Has(ID{0}) && ts.Has(ID{2}) && ts.Has(ID{4}))
}

func TestTombstonesFileStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	ts, err := openTombstones(path, at(epoch), 2)
	require.NoError(t, err)
	defer ts.Close() //nolint:errcheck // a test
	ts.lines = 2 * (2 + 1024)
	require.NoError(t, ts.Add(ID{1}, epoch.Add(time.Hour)))
	assert.Equal(t, 1, ts.lines)
	assert.Equal(t, 1, openTombs(t, path, epoch).Len(), "the new one is in the new file")
}

func TestTombstonesFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	ts := openTombs(t, path, epoch)
	good := ts.file
	broken, err := os.Open(path) // read only: writes fail
	require.NoError(t, err)
	ts.file = broken
	require.Error(t, ts.Add(ID{1}, epoch.Add(time.Hour)))
	assert.True(t, ts.Has(ID{1}), "ended all the same")
	require.NoError(t, good.Close())
	require.NoError(t, ts.Add(ID{2}, epoch.Add(time.Hour)), "writes the file anew")
	assert.Equal(t, 2, openTombs(t, path, epoch).Len())
}
