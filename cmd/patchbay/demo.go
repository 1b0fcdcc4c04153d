package main

import (
	"context"
	"fmt"
	"log/slog"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/demo"
)

// addDemo starts the demo servers and puts them into the configuration. They do
// not end with ctx, but when stop is called: after the gateway, which would else
// report them as lost.
func addDemo(ctx context.Context, cfg *config.Config, log *slog.Logger) (stop func(), err error) {
	d, err := demo.Start(context.WithoutCancel(ctx), log)
	if err != nil {
		return nil, fmt.Errorf("demo servers: %w", err)
	}
	for _, s := range []struct{ name, url string }{{"clock", d.Clock}, {"notes", d.Notes}} {
		cfg.Servers = append(cfg.Servers, config.Server{Name: s.name, URL: s.url})
	}
	return d.Close, nil
}
