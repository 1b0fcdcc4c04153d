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

	"patchbay.dev/internal/tune"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends an orderly end that takes too long
	err := tune.Process()
	if err == nil {
		err = root().ExecuteContext(ctx)
	}
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
		Long:          "Many MCP servers behind one endpoint, inside Envoy.\n\nTo try it: patchbay up",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetVersionTemplate("{{.Version}}\n")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	c.AddCommand(upCommand(), serveCommand(), renderCommand(), checkCommand(), versionCommand())
	return group(c)
}

// group makes c a command that has only subcommands: alone it shows them, and a
// word that is none of them is an error of one line.
func group(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := c.CommandPath() + " --help lists the commands"
		c.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets later
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean " + near[0] + "?"
		}
		return fmt.Errorf("there is no command %q (%s)", c.CommandPath()+" "+args[0], hint)
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// noArgs refuses arguments, most of which are a configuration without its flag.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.Flags().Lookup("config") != nil:
		return fmt.Errorf("unexpected %q (name a configuration with --config; %s --help lists the flags)", args[0], c.CommandPath())
	}
	return fmt.Errorf("unexpected %q: %s takes no arguments", args[0], c.CommandPath())
}
