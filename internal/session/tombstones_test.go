package session

import (
	"os"
	"path/filepath"
	"sync"
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

// Two processes with one file keep each other's lines, whoever writes it anew.
func TestTombstonesShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	one := openTombs(t, path, epoch)
	two := openTombs(t, path, epoch) // replaces the file that one has open
	require.NoError(t, one.Add(ID{1}, epoch.Add(time.Hour)))
	require.NoError(t, two.Add(ID{2}, epoch.Add(time.Hour)))
	require.NoError(t, one.Add(ID{3}, epoch.Add(time.Hour)))
	two.lines = 5000 // it finds the file too long
	require.NoError(t, two.Add(ID{4}, epoch.Add(time.Hour)))
	require.NoError(t, one.Add(ID{5}, epoch.Add(time.Hour)))
	after := openTombs(t, path, epoch)
	for i := range 5 {
		assert.True(t, after.Has(ID{byte(i + 1)}), "%d", i+1)
	}
}

// A process that was killed while it wrote spoils no line of another one.
func TestTombstonesTornByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	ts := openTombs(t, path, epoch)
	require.NoError(t, ts.Add(ID{1}, epoch.Add(time.Hour)))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("0123")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, ts.Add(ID{2}, epoch.Add(time.Hour)))
	after := openTombs(t, path, epoch)
	assert.True(t, after.Has(ID{1}) && after.Has(ID{2}))
}

func TestTombstonesSharedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ended")
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			ts, err := OpenTombstones(path, at(epoch))
			if !assert.NoError(t, err) {
				return
			}
			defer ts.Close() //nolint:errcheck // a test
			for i := range 20 {
				assert.NoError(t, ts.Add(ID{byte(p), byte(i), 1}, epoch.Add(time.Hour)))
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 80, openTombs(t, path, epoch).Len())
}
