// Command patchbay runs the gateway.
//
// `up` runs everything on one machine, with Envoy; `serve` is the gateway
// without Envoy, to stand beside one whose bootstrap `render bootstrap` prints;
// `check` tries a configuration. The commands only read flags and put the parts
// together (gateway.go); what the parts do is in their packages.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "patchbay:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "patchbay",
		Short:         "Many MCP servers behind one endpoint, inside Envoy",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(upCommand(), serveCommand(), renderCommand(), checkCommand(), versionCommand())
	return c
}
