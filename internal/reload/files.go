package reload

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"

	"patchbay.dev/internal/config"
)

const (
	// maxLinks is how many symbolic links a name may lead through, as in Linux.
	maxLinks = 40
	// maxRead bounds what is read of a file to see whether it changed; above
	// the largest configuration.
	maxRead = 4 << 20
)

// names returns the files whose change matters: the configuration and the CA
// files in it.
func names(path string, cfg *config.Config) []string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	out := []string{path}
	for i := range cfg.Servers {
		if t := cfg.Servers[i].TLS; t != nil && t.CAFile != "" && !slices.Contains(out, t.CAFile) {
			out = append(out, t.CAFile)
		}
	}
	return out
}

// watched are files, and the directories watched for them.
type watched struct {
	on    *fsnotify.Watcher // nil: nothing is told
	files []string
	// steps are the names, of files and links, whose change may mean another
	// content.
	steps map[string]bool
}

// follow watches these files instead of those before, and tells whether they are
// others.
func (w *watched) follow(files []string) bool {
	if slices.Equal(files, w.files) {
		return false
	}
	w.files = files
	w.refresh()
	return true
}

// refresh watches the directories that the names lead through now.
func (w *watched) refresh() {
	w.steps = map[string]bool{}
	for _, f := range w.files {
		for _, step := range steps(f) {
			w.steps[step] = true
		}
	}
	if w.on == nil {
		return
	}
	dirs := map[string]bool{}
	for step := range w.steps {
		dirs[filepath.Dir(step)] = true
	}
	for _, old := range w.on.WatchList() {
		if !dirs[old] {
			_ = w.on.Remove(old) // it may be gone already
		}
	}
	for dir := range dirs {
		_ = w.on.Add(dir) // without it, the file is looked at now and then
	}
}

// concerns tells whether the event may mean another content of a file.
func (w *watched) concerns(ev fsnotify.Event) bool {
	return ev.Op != fsnotify.Chmod && w.steps[ev.Name]
}

// steps returns the symbolic links on the way to the file, and its final name;
// when the way breaks off, the first name that is missing.
func steps(path string) []string {
	var out []string
	done, rest := "/", strings.Split(strings.TrimPrefix(path, "/"), "/")
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := filepath.Join(done, rest[0]) // resolves ".."
		rest = rest[1:]
		info, err := os.Lstat(name)
		switch {
		case err != nil:
			return append(out, name)
		case info.Mode()&os.ModeSymlink != 0:
			out = append(out, name)
			links++
			to, err := os.Readlink(name)
			if err != nil {
				return out
			}
			if filepath.IsAbs(to) {
				done, to = "/", strings.TrimPrefix(to, "/")
			}
			rest = append(strings.Split(to, "/"), rest...)
		case len(rest) == 0:
			return append(out, name)
		default:
			done = name
		}
	}
	return out
}

// fingerprint tells contents apart.
type fingerprint [sha256.Size]byte

func (w *watched) fingerprint() fingerprint {
	h := sha256.New()
	for _, name := range w.files {
		content, err := read(name)
		fmt.Fprintf(h, "%q %d %v\n", name, len(content), err)
		h.Write(content)
	}
	return fingerprint(h.Sum(nil))
}

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err // only hashed
	}
	defer f.Close()                               //nolint:errcheck // read only
	return io.ReadAll(io.LimitReader(f, maxRead)) // only hashed
}
