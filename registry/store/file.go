package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

const (
	// version is that of the file's format. A file of another one is not read.
	version = 1
	// maxFile is the largest file, in bytes: twice what a catalog may have (see
	// package upstream), because quotes are escaped here.
	maxFile = 128 << 20
)

// errMoved is returned for the catalog of another address.
var errMoved = errors.New("it is the catalog of another address")

// file is the content of a file. The raw JSON of items is kept in strings: that
// preserves its bytes.
type file struct {
	Version      int            `json:"version"`
	Server       string         `json:"server"`
	Address      string         `json:"address"` // SHA-256 of the URL, in hex
	Facts        registry.Facts `json:"facts"`
	ServerInfo   string         `json:"serverInfo"`
	Capabilities string         `json:"capabilities"`
	Instructions string         `json:"instructions,omitempty"`
	Tools        []item         `json:"tools,omitempty"`
	Prompts      []item         `json:"prompts,omitempty"`
	Resources    []item         `json:"resources,omitempty"`
	Templates    []item         `json:"templates,omitempty"`
}

type item struct {
	Name string `json:"name"`
	Raw  string `json:"raw"`
}

func addressOf(c *config.Server) string {
	sum := sha256.Sum256([]byte(c.URL))
	return hex.EncodeToString(sum[:])
}

func encode(srv *registry.Server) ([]byte, error) {
	c := srv.Info
	text, err := json.Marshal(file{
		Version: version, Server: srv.Config.Name, Address: addressOf(&srv.Config), Facts: srv.Facts,
		ServerInfo: string(c.ServerInfo), Capabilities: string(c.Capabilities), Instructions: c.Instructions,
		Tools: toItems(c.Tools), Prompts: toItems(c.Prompts), Resources: toItems(c.Resources), Templates: toItems(c.Templates),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return text, nil
}

// read returns the catalog of the server in the file at path. The error is
// fs.ErrNotExist, errMoved, or says what is wrong with the file.
func read(path string, of *config.Server) (*registry.Catalog, registry.Facts, error) {
	var none registry.Facts
	r, err := os.Open(path)
	if err != nil {
		return nil, none, err
	}
	defer r.Close() //nolint:errcheck // read only
	info, err := r.Stat()
	if err != nil {
		return nil, none, err
	}
	if info.Size() > maxFile {
		return nil, none, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return nil, none, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, none, fmt.Errorf("%s is damaged: %w", path, err)
	}
	switch {
	case f.Version != version:
		return nil, none, fmt.Errorf("%s has version %d of the format, this is version %d", path, f.Version, version)
	case f.Server != of.Name:
		return nil, none, fmt.Errorf("%s is of the server %.40q", path, f.Server)
	case f.Address != addressOf(of):
		return nil, none, errMoved
	}
	return &registry.Catalog{
		Tools: fromItems(f.Tools), Prompts: fromItems(f.Prompts), Resources: fromItems(f.Resources), Templates: fromItems(f.Templates),
		ServerInfo: []byte(f.ServerInfo), Capabilities: []byte(f.Capabilities), Instructions: f.Instructions,
	}, f.Facts, nil
}

func toItems(in []registry.Item) []item {
	out := make([]item, len(in))
	for i := range in {
		out[i] = item{in[i].Name, string(in[i].Raw)}
	}
	return out
}

func fromItems(in []item) []registry.Item {
	out := make([]registry.Item, len(in))
	for i := range in {
		out[i] = registry.Item{Name: in[i].Name, Raw: []byte(in[i].Raw)}
	}
	return out
}
