package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"patchbay.dev/envoy"
	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

// envoyLogLevels are what Envoy takes for --log-level (Envoy docs, operations,
// command line options).
var envoyLogLevels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}

func upCommand() *cobra.Command {
	var o options
	var envoyLog string
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: Envoy, the gateway, and demo servers when no configuration is given",
		Long: `Run everything on this machine: Envoy and the gateway.

Without a configuration there are two demo servers behind the gateway, a clock
and notes. Ctrl-C stops everything.`,
		Example: `  patchbay up
  patchbay up -c patchbay.yaml
  patchbay up -c claude_desktop_config.json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return up(c, &o, envoyLog) },
	}
	o.register(c)
	c.Flags().StringVar(&envoyLog, "envoy-log-level", "warning", strings.Join(envoyLogLevels, ", "))
	return c
}

func up(c *cobra.Command, o *options, envoyLog string) error {
	log, err := o.logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if !slices.Contains(envoyLogLevels, envoyLog) {
		return fmt.Errorf("--envoy-log-level %q: expected one of %s", envoyLog, strings.Join(envoyLogLevels, ", "))
	}
	cfg, err := o.load(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := checkFree(c.Context(), cfg.Listen); err != nil {
		return err
	}
	path, err := envoy.Find()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "patchbay-") // short: a socket's path has 108 bytes at most
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	a := addresses{
		extproc: "unix://" + filepath.Join(dir, "extproc"),
		broker:  "unix://" + filepath.Join(dir, "broker"),
		xds:     "unix://" + filepath.Join(dir, "xds"),
	}
	on, err := listen(c.Context(), a, cfg)
	if err != nil {
		return err
	}
	defer on.close()
	if o.config == "" {
		stop, err := addDemo(c.Context(), cfg, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	bootstrap, err := envoy.Bootstrap(bootstrapConfig(cfg, a))
	if err != nil {
		return err
	}
	g, err := newGateway(cfg, log)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	process := envoy.ProcessConfig{
		Path: path, Bootstrap: bootstrap, Listen: cfg.Listen, TLS: cfg.TLS != nil, LogLevel: envoyLog, Log: log, Metrics: g.envoy,
		Logs: envoyLogs(c.Context(), c.ErrOrStderr()), Ready: sync.OnceFunc(func() { close(ready) }),
	}
	return g.run(c.Context(), on, g.reloading(o, !onTerminal()),
		func(ctx context.Context) error { return envoy.Supervise(ctx, process) },
		func(ctx context.Context) error { return announce(ctx, c.OutOrStdout(), g, ready) })
}

// checkFree tries the endpoint's address, which Envoy will listen on, before
// anything is started.
func checkFree(ctx context.Context, address string) error {
	l, err := listenOn(ctx, address, "--listen")
	if err != nil {
		return err
	}
	return l.Close() // a listener that nobody has used
}

// envoyLogs prints Envoy's log, apart from ours by its prefix. What it says of
// being told to end is of no use to anybody.
func envoyLogs(ctx context.Context, w io.Writer) func(line string) {
	return func(line string) {
		if ctx.Err() == nil {
			fmt.Fprintln(w, "envoy |", line)
		}
	}
}

// announce prints how to use the gateway as soon as it can be used.
func announce(ctx context.Context, w io.Writer, g *gateway, ready <-chan struct{}) error {
	for _, c := range []<-chan struct{}{ready, g.settled} {
		select {
		case <-c:
		case <-ctx.Done():
			return nil
		}
	}
	if ctx.Err() != nil { // the end settles, too
		return nil
	}
	return banner(w, g.cfg, g.registry.Snapshot())
}

// banner writes all at once, so that whoever waits for its first line has it
// whole.
func banner(w io.Writer, cfg *config.Config, s *registry.Snapshot) error {
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
	}
	url := scheme + "://" + reachable(cfg.Listen) + envoy.Endpoint
	snippet, err := json.MarshalIndent(map[string]any{
		"mcpServers": map[string]any{"patchbay": map[string]string{"type": "http", "url": url}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("banner: %w", err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "Patchbay is up.\n\n  MCP endpoint  %s\n  admin         http://%s/metrics\n\n", url, reachable(cfg.Admin))
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  SERVER\tSTATE\tTOOLS")
	for _, srv := range s.Servers() {
		fmt.Fprintf(t, "  %s\t%s\t%d", srv.Config.Name, srv.State, srv.Listed)
		if srv.Message != "" {
			fmt.Fprintf(t, "\t%s", srv.Message)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("banner: %w", err)
	}
	fmt.Fprintf(&text, "\nPaste this into your client's configuration:\n\n%s\n\nCtrl-C stops everything.\n", snippet)
	_, err = text.WriteTo(w)
	return err
}

// reachable is a listener's address as a client on this machine reaches it.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil { // it was checked
		return address
	}
	switch host {
	case "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
