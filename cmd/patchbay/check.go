package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/upstream"
)

// checkTime bounds the check of one server.
const checkTime = 15 * time.Second

func checkCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "check [file]",
		Short: "Check a configuration and connect to each of its servers",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.config = args[0]
			}
			return check(c, &o)
		},
	}
	o.register(c)
	return c
}

func check(c *cobra.Command, o *options) error {
	if o.config == "" {
		return errors.New("check needs a configuration: patchbay check FILE")
	}
	cfg, err := o.load(c.ErrOrStderr())
	if err != nil {
		return err
	}
	results := checkAll(c.Context(), cfg.Servers)
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tSTATE\tREVISION\tTOOLS\tPROBLEM")
	bad := 0
	for i, r := range results {
		state, tools, problem := "ready", strconv.Itoa(r.Tools), ""
		if r.Reason != "" {
			bad++
			problem = fmt.Sprintf("%s: %s", r.Reason, r.Message)
			if r.Revision == "" {
				state, tools, r.Revision = "unavailable", "-", "-"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", cfg.Servers[i].Name, state, r.Revision, tools, problem)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d servers have a problem", bad, len(results))
	}
	return nil
}

func checkAll(ctx context.Context, servers []config.Server) []upstream.Result {
	results := make([]upstream.Result, len(servers))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, s := range servers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			results[i] = upstream.Check(ctx, s, upstream.Options{Version: version()})
		})
	}
	wg.Wait()
	return results
}
