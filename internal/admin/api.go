package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

const (
	defaultTools = 1000   // on one page
	maxTools     = 10_000 // on one page
	maxProblems  = 1000   // shown of one server
)

// api serves /api/v1. The types below are its documents; docs/operations.md says
// what each member means.
type api struct{ catalog Catalog }

// Server is one server as /api/v1/servers shows it.
type Server struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`

	Address  string `json:"address"`
	Prefix   string `json:"prefix"`
	Revision string `json:"revision,omitempty"`
	Cluster  string `json:"cluster"`

	Way       string `json:"way"`
	WayReason string `json:"wayReason,omitempty"`

	Facts   *Facts  `json:"facts,omitempty"`
	Listed  int     `json:"toolsListed"`
	Offers  *Offers `json:"offers,omitempty"`
	Dropped int     `json:"dropped"`

	ProblemCount int       `json:"problemCount"`
	Problems     []Problem `json:"problems,omitempty"` // of one server only
}

// Facts are what was learnt about a server by talking to it.
type Facts struct {
	Sessions   bool `json:"sessions"`
	LostStatus int  `json:"lostStatus"`
	Stream     bool `json:"stream"`
}

// Offers counts what the server has listed last.
type Offers struct {
	Tools     int `json:"tools"`
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"resourceTemplates"`
}

// Problem is something wrong with one item of a server.
type Problem struct {
	Item    string `json:"item"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Dropped bool   `json:"dropped"`
}

// Tool is one tool as /api/v1/tools shows it.
type Tool struct {
	Name      string `json:"name"`
	Server    string `json:"server"`
	Original  string `json:"original"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
}

func (a *api) servers(w http.ResponseWriter, _ *http.Request) {
	out := []Server{}
	for _, srv := range a.catalog.Snapshot().Servers() {
		out = append(out, serverOf(srv))
	}
	writeJSON(w, http.StatusOK, map[string]any{"servers": out})
}

func (a *api) server(w http.ResponseWriter, r *http.Request) {
	srv, ok := a.catalog.Snapshot().Server(r.PathValue("name"))
	if !ok {
		noServer(w, r.PathValue("name"))
		return
	}
	out := serverOf(srv)
	for _, p := range srv.Problems[:min(len(srv.Problems), maxProblems)] {
		out.Problems = append(out.Problems, Problem{p.Item, string(p.Reason), p.Message, p.Dropped})
	}
	writeJSON(w, http.StatusOK, out)
}

// tools answers one page, in the order of the names, so that a page goes on
// where the last one ended although the catalog changed in between.
func (a *api) tools(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit := defaultTools
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxTools {
			fail(w, http.StatusBadRequest, "limit: expected a number from 1 to %d", maxTools)
			return
		}
	}
	snap := a.catalog.Snapshot()
	server, after := query.Get("server"), query.Get("after")
	if _, ok := snap.Server(server); server != "" && !ok {
		noServer(w, server)
		return
	}
	var entries []*registry.Entry
	for _, e := range snap.Tools() {
		if (server == "" || e.Server.Config.Name == server) && e.Name > after {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *registry.Entry) int { return strings.Compare(a.Name, b.Name) })
	page := struct {
		Tools []Tool `json:"tools"`
		Next  string `json:"next,omitempty"`
	}{Tools: []Tool{}}
	for _, e := range entries[:min(limit, len(entries))] {
		page.Tools = append(page.Tools, toolOf(e))
	}
	if len(entries) > limit {
		page.Next = entries[limit-1].Name
	}
	writeJSON(w, http.StatusOK, page)
}

func toolOf(e *registry.Entry) Tool {
	t := Tool{Name: e.Name, Server: e.Server.Config.Name, Original: e.Original, Available: e.Server.State == registry.Ready}
	if t.Available {
		return t
	}
	t.Reason, t.Message = string(e.Server.Reason), e.Server.Message
	if e.Server.State == registry.Connecting {
		t.Reason, t.Message = "Connecting", connecting
	}
	return t
}

const connecting = "the server was not reached since the start of the gateway"

func serverOf(srv *registry.Server) Server {
	out := Server{
		Name: srv.Config.Name, State: srv.State.String(), Reason: string(srv.Reason), Message: srv.Message, Since: srv.Since.UTC(),
		Address: addressOf(&srv.Config), Prefix: srv.Config.ToolPrefix(), Revision: srv.Facts.Revision, Cluster: srv.Cluster,
		Listed: srv.Listed, Dropped: droppedOf(srv), ProblemCount: len(srv.Problems),
	}
	out.Way, out.WayReason = wayOf(srv)
	if c := srv.Info; c != nil {
		out.Facts = &Facts{Sessions: srv.Facts.Sessions, LostStatus: srv.Facts.LostStatus, Stream: srv.Facts.Stream}
		out.Offers = &Offers{Tools: len(c.Tools), Prompts: len(c.Prompts), Resources: len(c.Resources), Templates: len(c.Templates)}
	}
	return out
}

// wayOf says how calls reach the server now, and why not directly.
func wayOf(srv *registry.Server) (way, reason string) {
	switch {
	case srv.State == registry.Connecting:
		return "none", connecting
	case srv.State != registry.Ready:
		return "none", "the server is unavailable"
	case srv.Direct():
		return "direct", ""
	case srv.Config.Way == config.WayBroker:
		return "broker", "configured: way: broker"
	}
	return "broker", "not every connected Envoy has the cluster, or none is connected"
}

// addressOf leaves out what may be secret: user, path and query.
func addressOf(c *config.Server) string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

func noServer(w http.ResponseWriter, name string) {
	fail(w, http.StatusNotFound, "there is no server %.60q; GET /api/v1/servers lists them", name)
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	writeJSON(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client left
}
