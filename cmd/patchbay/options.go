package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

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
	f.StringVar(&o.listen, "listen", "", "address of the MCP endpoint (instead of the configuration's)")
	f.StringVar(&o.admin, "admin", "", "address of /metrics, /healthz and /readyz (instead of the configuration's)")
	f.StringVar(&o.stateDir, "state-dir", "", "directory for what must survive a restart (instead of the configuration's)")
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
	env := func(name string) (string, bool) {
		if name == "STATE_DIRECTORY" && o.stateDir != "" {
			return o.stateDir, true
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
		return nil, warnings, err //nolint:wrapcheck // it names the file and the place
	}
	if o.listen != "" {
		cfg.Listen = o.listen
	}
	if o.admin != "" {
		cfg.Admin = o.admin
	}
	return cfg, warnings, nil
}

func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", o.logLevel)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
}
