package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/reload"
)

// reloading returns what keeps the configuration of o in force; with hup, a
// SIGHUP reloads it too. Without a file there is nothing to do.
func (g *gateway) reloading(o *options, hup bool) func(context.Context) error {
	if o.config == "" {
		return func(context.Context) error { return nil }
	}
	r := reload.New(reload.Options{
		Path: o.config, Started: g.cfg, Load: o.read, Apply: g.apply, Registerer: g.gatherer, Log: g.log,
	})
	return func(ctx context.Context) error {
		if hup {
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGHUP)
			defer signal.Stop(signals)
			go func() {
				for {
					select {
					case <-signals:
						r.Trigger()
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		return r.Run(ctx) // it returns nil
	}
}

// onTerminal tells whether the process belongs to a terminal, whose end, told
// by SIGHUP, must end it.
func onTerminal() bool {
	in, err := os.Stdin.Stat()
	if err != nil || in.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(in, null)
}

// apply makes the servers of cfg the ones that are served. Routing changes
// first: a server that is new or has moved takes the broker's way until every
// Envoy has its cluster, and the cluster of a removed one stays for the calls
// that are on their way to it.
func (g *gateway) apply(cfg *config.Config) error {
	before := g.registry.Snapshot()
	g.manager.Apply(cfg.Servers)
	after := g.registry.Snapshot()
	for _, srv := range before.Servers() {
		if _, stays := after.Server(srv.Config.Name); !stays {
			g.table.DropServer(srv.Config.Name)
		}
	}
	ups, err := upstreams(after)
	if err != nil {
		return err
	}
	if err := g.xds.SetUpstreams(ups); err != nil {
		return fmt.Errorf("envoy: %w", err)
	}
	return nil
}
