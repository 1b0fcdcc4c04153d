package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"patchbay.dev/internal/atomicfile"
	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

// settleTime is how long changes are collected before they are written: servers
// often change several lists at once.
const settleTime = 250 * time.Millisecond

const suffix = ".json"

// Catalogs is the registry, as much of it as is needed here.
type Catalogs interface {
	Snapshot() *registry.Snapshot
	Restore(name string, c *registry.Catalog, f registry.Facts)
}

// Store keeps catalogs in a directory of its own.
type Store struct {
	dir   string
	from  Catalogs
	log   *slog.Logger
	dirty chan struct{} // holds a token when something may have changed

	kept map[string]kept // owned by Restore, then by Run; by server
}

// kept is what is in a server's file.
type kept struct {
	catalog *registry.Catalog
	facts   registry.Facts
}

// New returns a Store in dir, which is made, mode 0700.
func New(dir string, from Catalogs, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("catalogs: %w", err)
	}
	return &Store{dir: dir, from: from, log: log, dirty: make(chan struct{}, 1), kept: map[string]kept{}}, nil
}

// Restore gives the registry, which must have the servers already, their last
// catalogs.
func (s *Store) Restore(servers []config.Server) {
	for i := range servers {
		c := &servers[i]
		catalog, facts, err := read(s.path(c.Name), c)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, errMoved):
			s.log.Info("the kept catalog is of another address and not used", "server", c.Name)
		case err != nil:
			s.log.Warn("the kept catalog is not used; it is replaced when the server is connected", "server", c.Name, "error", err)
		default:
			s.kept[c.Name] = kept{catalog, facts}
			s.from.Restore(c.Name, catalog, facts)
		}
	}
}

// Changed says that a catalog may have changed. It does not block.
func (s *Store) Changed(registry.Event) {
	select {
	case s.dirty <- struct{}{}:
	default: // it will look anyway
	}
}

// Run writes what changes until ctx is done, and then what is left. It returns
// nil; what cannot be written is logged, and tried again at the next change.
func (s *Store) Run(ctx context.Context) error {
	s.Changed(registry.Event{}) // removes what servers left that went meanwhile
	var settled <-chan time.Time
	for {
		select {
		case <-s.dirty:
			if settled == nil {
				settled = time.After(settleTime)
			}
		case <-settled:
			settled = nil
			s.write()
		case <-ctx.Done():
			s.write()
			return nil
		}
	}
}

// write brings the files in step with the registry.
func (s *Store) write() {
	snap := s.from.Snapshot()
	for _, srv := range snap.Servers() {
		now := kept{srv.Info, srv.Facts}
		if srv.Info == nil || s.kept[srv.Config.Name] == now {
			continue
		}
		if err := s.save(srv); err != nil {
			s.log.Error("cannot keep the catalog for a restart", "server", srv.Config.Name, "error", err)
			continue
		}
		s.kept[srv.Config.Name] = now
	}
	s.sweep(snap)
}

func (s *Store) save(srv *registry.Server) error {
	text, err := encode(srv)
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return atomicfile.Write(s.path(srv.Config.Name), text)
}

// sweep removes the files of servers that are gone, and what a crash left of a
// write.
func (s *Store) sweep(snap *registry.Snapshot) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Error("the kept catalogs cannot be listed", "error", err)
		return
	}
	for _, f := range files {
		name, ours := strings.CutSuffix(f.Name(), suffix)
		if _, there := snap.Server(name); there && ours || !ours && !atomicfile.Temporary(f.Name()) || f.IsDir() {
			continue
		}
		delete(s.kept, name)
		if err := os.Remove(filepath.Join(s.dir, f.Name())); err != nil {
			s.log.Error("cannot remove the catalog of a server that is gone", "server", name, "error", err)
		}
	}
}

// path is the file of a server, whose name is plain (see config.Server).
func (s *Store) path(server string) string { return filepath.Join(s.dir, server+suffix) }
