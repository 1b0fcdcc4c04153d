package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/internal/upstream"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// levels are those of RFC 5424, as logging/setLevel has them.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

type levelParams struct {
	Level string `json:"level"`
}

// setLevel serves logging/setLevel and returns the outcome. Each backend session
// is the client's alone, so the backends filter by themselves; those that are
// opened later get the level then.
func (b *Broker) setLevel(w *response, r *http.Request, d *router.Decision, req *router.Request) string {
	var p levelParams
	if raw := req.Message.Params; !raw.Present() || json.Unmarshal(raw.Of(req.Body), &p) != nil || !slices.Contains(levels, p.Level) {
		return b.fail(w, r, req, &mcp.Error{
			Code: mcp.CodeInvalidParams, Reason: mcp.ReasonInvalidParams, Status: http.StatusOK,
			Message: "params.level must be one of debug, info, notice, warning, error, critical, alert, emergency",
		})
	}
	if err := d.Session.SetLevel(p.Level); err != nil {
		return b.fail(w, r, req, router.ErrSession(err))
	}
	ctx, cancel := context.WithTimeout(r.Context(), notifyTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for server, be := range d.Session.Backends() {
		wg.Go(func() { b.passLevel(ctx, server, be, p.Level) })
	}
	wg.Wait()
	writeJSON(w, http.StatusOK, mcp.Result(req.ID(), []byte("{}")))
	return "ok"
}

func (b *Broker) passLevel(ctx context.Context, server string, be *session.Backend, level string) {
	srv, ok := b.Registry.Snapshot().Server(server)
	client, known := b.Upstreams.ClientAt(server, be.Epoch)
	if !ok || !known || !srv.Logs {
		return
	}
	if _, err := client.Call(ctx, ref(be), mcp.MethodSetLevel, levelParams{level}); err != nil {
		b.Log.Debug("log level not set", "server", server, "error", err)
	}
}

// inheritLevel gives a backend session that was just opened the client's level.
func inheritLevel(ctx context.Context, client *upstream.Client, o *upstream.Opened, level string) {
	if level == "" || !registry.Logs(o.Capabilities) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	// A server that refuses a level that it declared to know sends what it likes.
	_, _ = client.Call(ctx, o.Ref, mcp.MethodSetLevel, levelParams{level})
}

// wanted tells whether a log message with the raw params is severe enough for a
// client that asked for level: some servers send all of them, whatever was asked.
func wanted(level string, params []byte) bool {
	if level == "" {
		return true
	}
	var p levelParams
	if json.Unmarshal(params, &p) != nil {
		return true
	}
	got := slices.Index(levels, p.Level)
	return got < 0 || got >= slices.Index(levels, level)
}
