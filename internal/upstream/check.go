package upstream

import (
	"context"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/registry"
)

// Result is what [Check] found out about a server.
type Result struct {
	// Revision is the protocolVersion agreed on, empty when there is none.
	Revision string
	// Tools is how many tools the server lists.
	Tools int
	// Reason and Message say why the server cannot be used; ReasonNone when it
	// can.
	Reason  registry.Reason
	Message string
}

// Check connects to a server once, counts its tools and leaves. It takes no
// longer than its requests may, see [Options].
func Check(ctx context.Context, cfg config.Server, opt Options) Result {
	c, err := NewClient(cfg, opt)
	if err != nil {
		return Result{Reason: registry.ReasonUnreachable, Message: err.Error()}
	}
	defer c.Close()
	o, err := c.Open(ctx, OpenParams{Capabilities: mcp.CapAll.JSON()})
	if err != nil {
		return failed(err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		c.abandon(end, o.Ref)
	}()
	has, _ := declared(o.Capabilities)
	catalog, err := c.fetch(ctx, o.Ref, &registry.Catalog{}, has)
	if err != nil {
		r := failed(err)
		r.Revision = o.Revision
		return r
	}
	return Result{Revision: o.Revision, Tools: len(catalog.Tools)}
}

func failed(err error) Result {
	reason, message := reasonOf(err)
	return Result{Reason: reason, Message: message}
}
