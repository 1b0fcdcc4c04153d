package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"patchbay.dev/internal/config"
)

// options are the flags that several commands share.
type options struct {
	config, listen, admin, stateDir, logLevel string
}

func (o *options) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration file: patchbay.yaml, or the mcpServers JSON of a desktop client")
	f.StringVar(&o.listen, "listen", "", "address of the MCP endpoint (default: the configuration's, else 127.0.0.1:8080)")
	f.StringVar(&o.admin, "admin", "", "address of /metrics, /healthz, /readyz and /api/v1 (default: the configuration's, else 127.0.0.1:8090)")
	f.StringVar(&o.stateDir, "state-dir", "", "directory for what must survive a restart (default: the configuration's, else ~/.local/state/patchbay)")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// load reads the configuration, if one is named, and applies the flags.
// Warnings go to w.
func (o *options) load(w io.Writer) (*config.Config, error) {
	cfg, warnings, err := o.read()
	for _, warning := range warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	return cfg, err
}

// read is load for a process that runs already.
func (o *options) read() (*config.Config, []config.Warning, error) {
	state := ""
	if o.stateDir != "" {
		var err error
		if state, err = filepath.Abs(o.stateDir); err != nil {
			return nil, nil, fmt.Errorf("--state-dir: %w", err)
		}
	}
	env := func(name string) (string, bool) {
		if name == "STATE_DIRECTORY" && state != "" {
			return state, true // where there is no HOME, none is missed
		}
		return os.LookupEnv(name)
	}
	var cfg *config.Config
	var warnings []config.Warning
	var err error
	if o.config == "" {
		cfg, err = config.Default(env)
	} else {
		cfg, warnings, err = config.Load(o.config, env)
	}
	if err != nil {
		return nil, warnings, err
	}
	if state != "" {
		moveState(cfg, state)
	}
	return cfg, warnings, o.addresses(cfg)
}

// moveState puts the state into dir, with the key file where that lies in it.
func moveState(cfg *config.Config, dir string) {
	if rel, err := filepath.Rel(cfg.StateDir, cfg.Sessions.KeyFile); err == nil && filepath.IsLocal(rel) {
		cfg.Sessions.KeyFile = filepath.Join(dir, rel)
	}
	cfg.StateDir = dir
}

// addresses puts the flags' addresses into cfg.
func (o *options) addresses(cfg *config.Config) error {
	for _, a := range []struct {
		flag, value string
		to          *string
	}{{"--listen", o.listen, &cfg.Listen}, {"--admin", o.admin, &cfg.Admin}} {
		if a.value == "" {
			continue
		}
		address, err := config.ParseAddress(a.value)
		if err != nil {
			return fmt.Errorf("%s: %w", a.flag, err)
		}
		*a.to = address
	}
	if cfg.Listen == cfg.Admin {
		return fmt.Errorf("%s is the address of the endpoint and of the admin port: choose another with --listen or --admin", cfg.Listen)
	}
	return nil
}

func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", o.logLevel)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
}
