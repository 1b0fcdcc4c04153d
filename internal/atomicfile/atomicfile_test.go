package atomicfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		require.NoError(t, atomicfile.Write(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	require.Error(t, atomicfile.Write(filepath.Join(dir, "d"), nil), "a directory is in the way")
	require.Error(t, atomicfile.Write(filepath.Join(dir, "none", "f"), nil))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2, "nothing temporary stays")
	assert.True(t, atomicfile.Temporary("f.tmp-1"))
	assert.False(t, atomicfile.Temporary("f.json"))
}

// Of many that create the file at once one wins, and nobody's replaces it.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = atomicfile.Create(path, []byte{byte('a' + i)}) })
	}
	all.Wait()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, got, 1)
	for i, err := range errs {
		if i == int(got[0]-'a') {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, fs.ErrExist)
		}
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.ErrorIs(t, atomicfile.Create(filepath.Join(dir, "none", "f"), nil), fs.ErrNotExist)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing temporary stays")
}
