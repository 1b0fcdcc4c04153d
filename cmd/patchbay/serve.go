package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"patchbay.dev/envoy"
	"patchbay.dev/internal/config"
)

// addresses are where `serve` listens for Envoy: "host:port" or "unix:///path".
type addresses struct{ extproc, broker, xds string }

func (a *addresses) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.extproc, "extproc", "127.0.0.1:8091", `address of ext_proc for Envoy, host:port or unix:///path`)
	f.StringVar(&a.broker, "broker", "127.0.0.1:8092", `address of the broker for Envoy`)
	f.StringVar(&a.xds, "xds", "127.0.0.1:8093", `address of the xDS server for Envoy`)
}

func serveCommand() *cobra.Command {
	var o options
	var a addresses
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway beside an Envoy that you run (see render bootstrap)",
		Long: `Run the gateway without Envoy, to stand beside one that you run.

That Envoy's bootstrap comes from "patchbay render bootstrap", given the same
configuration and the same addresses. Either may be started first, and restarted.`,
		Example: `  patchbay serve -c patchbay.yaml
  patchbay render bootstrap -c patchbay.yaml > envoy.yaml
  envoy -c envoy.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c, &o, a) },
	}
	o.register(c)
	a.register(c)
	return c
}

func serve(c *cobra.Command, o *options, a addresses) error {
	log, err := o.logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.config == "" {
		return errors.New("serve needs a configuration: name it with --config (patchbay up runs without one)")
	}
	cfg, err := o.load(c.ErrOrStderr())
	if err != nil {
		return err
	}
	on, err := listen(c.Context(), a, cfg)
	if err != nil {
		return err
	}
	defer on.close()
	g, err := newGateway(cfg, log)
	if err != nil {
		return err
	}
	log.Info("serving", "extproc", a.extproc, "broker", a.broker, "xds", a.xds, "admin", cfg.Admin)
	return g.run(c.Context(), on, g.reloading(o, true))
}

// listen opens every listener, or none.
func listen(ctx context.Context, a addresses, cfg *config.Config) (on endpoints, err error) {
	defer func() {
		if err != nil {
			on.close()
		}
	}()
	if on.admin, err = listenOn(ctx, cfg.Admin, "--admin"); err != nil {
		return on, err
	}
	if on.extproc, err = listenOn(ctx, a.extproc, "--extproc"); err != nil {
		return on, err
	}
	if on.broker, err = listenOn(ctx, a.broker, "--broker"); err != nil {
		return on, err
	}
	on.xds, err = listenOn(ctx, a.xds, "--xds")
	return on, err
}

// listenOn listens on "host:port" or "unix:///path"; flag is where to choose
// another address.
func listenOn(ctx context.Context, address, flag string) (net.Listener, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, address = "unix", path
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("address %s is in use: stop what listens there, or choose another with %s", address, flag)
	case err != nil:
		return nil, fmt.Errorf("cannot listen: %w (choose another address with %s)", err, flag)
	}
	if network == "unix" {
		// Whoever can connect can pose as Envoy: this user only.
		if err := os.Chmod(address, 0o600); err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("socket %s: %w", address, err)
		}
	}
	return l, nil
}

// removeStale removes the socket of a process that was killed.
func removeStale(ctx context.Context, path string) error {
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSocket == 0 {
		return nil // not there, or not ours to remove: listen tells
	}
	var d net.Dialer
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil // somebody listens: listen tells
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("stale socket: %w", err)
	}
	return nil
}

func renderCommand() *cobra.Command {
	c := &cobra.Command{Use: "render", Short: "Print the bootstrap for an Envoy of your own"}
	c.AddCommand(renderBootstrapCommand())
	return group(c)
}

func renderBootstrapCommand() *cobra.Command {
	var o options
	var a addresses
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the bootstrap of an Envoy that runs beside `patchbay serve`",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := o.load(c.ErrOrStderr())
			if err != nil {
				return err
			}
			out, err := envoy.Bootstrap(bootstrapConfig(cfg, a))
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	o.register(c)
	a.register(c)
	return c
}

func bootstrapConfig(cfg *config.Config, a addresses) envoy.BootstrapConfig {
	return envoy.BootstrapConfig{
		Listen: cfg.Listen, TLS: cfg.TLS, BodyLimit: cfg.BodyLimit, NoAccessLog: !cfg.Calls.Direct,
		ExtProc: a.extproc, Broker: a.broker, XDS: a.xds,
	}
}
