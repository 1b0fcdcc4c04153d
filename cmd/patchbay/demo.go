package main

import (
	"context"
	"errors"
	"log/slog"

	"patchbay.dev/internal/config"
)

func addDemo(_ context.Context, _ *config.Config, _ *slog.Logger) (stop func(), err error) {
	return nil, errors.New("no demo servers yet")
}
