package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// Env looks a variable of the environment up, as os.LookupEnv does.
type Env = func(name string) (string, bool)

// Load reads and checks a configuration file of at most 1 MiB. The error is
// Errors when the file was read and is wrong; warnings come with and without an
// error. See Parse for the formats.
func Load(path string, env Env) (*Config, []Warning, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: %w: check the name of the configuration", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, data, env)
}

// Parse checks a configuration that was read from the file called name, whose
// directory relative paths in it are taken from. It is YAML, or JSON when name
// ends in .json or the first character is a brace; a file with the top-level key
// "mcpServers" is read as the configuration of a desktop client. Certificate
// files that it names are read, to check them.
func Parse(name string, data []byte, env Env) (*Config, []Warning, error) {
	p := &problems{file: name, places: map[string]position{"": {1, 1}}}
	c := defaults(env)
	root, err := parseTree(name, data)
	if err != nil {
		var syntax *syntaxError
		if errors.As(err, &syntax) {
			p.errorAt(syntax.pos, "", "%s", syntax.msg)
		} else {
			p.errorAt(position{}, "", "%s", err)
		}
		return nil, nil, p.err()
	}
	var paths []string // of each server, for messages
	if root.kind == kindMap && root.get("mcpServers") != nil {
		paths = p.decodeDesktop(root, c)
	} else {
		p.decode("", root, reflect.ValueOf(c).Elem())
		for i := range c.Servers {
			paths = append(paths, fmt.Sprintf("servers[%d]", i))
		}
	}
	p.check(c, paths, env)
	if err := p.err(); err != nil {
		return nil, p.warnings, err
	}
	return c, p.warnings, nil
}

// parseTree chooses the format.
func parseTree(name string, data []byte) (*node, error) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // editors on Windows
	if len(data) > maxFileBytes {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	if !utf8.Valid(data) {
		return nil, &syntaxError{firstInvalid(data), "not valid UTF-8: save the file in UTF-8"}
	}
	ext := strings.ToLower(filepath.Ext(name))
	brace := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
	if ext == ".json" || (brace && ext != ".yaml" && ext != ".yml") {
		return parseJSON(data)
	}
	return parseYAML(data)
}

func firstInvalid(data []byte) position {
	pos := position{1, 1}
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && size == 1 {
			break
		}
		if i += size; c == '\n' {
			pos = position{pos.line + 1, 1}
		} else {
			pos.column++
		}
	}
	return pos
}

// Default returns the configuration without any file: no servers. The error says
// that no place for the state is known, because of an empty environment.
func Default(env Env) (*Config, error) {
	c := defaults(env)
	if c.StateDir == "" {
		return nil, errors.New(noStateDir)
	}
	c.Sessions.KeyFile = filepath.Join(c.StateDir, c.Sessions.KeyFile)
	return c, nil
}

// Defaults of a server.
const (
	defaultPoll = 30 * time.Second
	noStateDir  = "no place for the state is known: set stateDir, or HOME in the environment"
)

// defaults returns what is in force for keys that the file lacks. StateDir is
// empty when the environment does not tell any.
func defaults(env Env) *Config {
	return &Config{
		Listen:    "127.0.0.1:8080",
		Admin:     "127.0.0.1:8090",
		BodyLimit: 4 << 20,
		Origins:   []string{"http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"},
		StateDir:  defaultStateDir(env),
		Calls:     Calls{Direct: true},
		Sessions: Sessions{
			KeyFile:     "keys",
			Store:       "memory",
			Lifetime:    Duration(720 * time.Hour),
			IdleTimeout: Duration(30 * time.Minute),
		},
	}
}

// defaultStateDir follows systemd (STATE_DIRECTORY may be a list, separated by
// colons: systemd.exec, RuntimeDirectory=) and the XDG base directory
// specification, which says that a relative path is to be ignored.
func defaultStateDir(env Env) string {
	get := func(name string) string {
		value, _ := env(name)
		if first, _, _ := strings.Cut(value, ":"); filepath.IsAbs(first) {
			return first
		}
		return ""
	}
	if dir := get("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if dir := get("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "patchbay")
	}
	if dir := get("HOME"); dir != "" {
		return filepath.Join(dir, ".local", "state", "patchbay")
	}
	return ""
}
