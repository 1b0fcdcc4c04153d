package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"patchbay.dev/internal/config"
)

// Snapshot is the merged catalog at one moment. It is immutable.
type Snapshot struct {
	servers   []*Server
	byName    map[string]*Server
	tools     list
	prompts   list
	resources list
	templates list
	full      *View
}

// list is one kind of item, merged: in the order of the servers, by final name.
type list struct {
	all    []*Entry
	byName map[string]*Entry
}

// Server is one server within a Snapshot. It is immutable.
type Server struct {
	Config  config.Server
	State   State
	Reason  Reason
	Message string
	// Since is when State and Reason became what they are.
	Since time.Time
	Facts Facts
	// Info is what the server said about itself, before a restart perhaps; nil
	// when it was never connected.
	Info *Catalog
	// Problems are the items that are not, or not as asked, in the catalog.
	Problems []Problem
	// Cluster is the name of the Envoy cluster for direct calls. It changes with
	// the address, so that it also tells a backend session of an old address.
	Cluster string
	// Authority and Path are the :authority and :path of direct calls.
	Authority, Path string
	// Routable tells whether every connected Envoy knows the cluster.
	Routable bool
	// Logs tells whether the server declared logging, and so filters its log
	// messages by level itself.
	Logs bool
	// Listed is how many of its tools are in the list now.
	Listed int
}

// Direct tells whether calls may go straight from Envoy to the server now.
func (s *Server) Direct() bool {
	return s.Routable && s.Config.Way != config.WayBroker && s.State == Ready
}

// Entry is one tool, prompt, resource or template in the catalog. It is
// immutable.
type Entry struct {
	Server *Server
	// Name is the name (or URI) that clients use, Original the server's own.
	Name, Original string
	// Definition is the JSON object as the server sent it, Listed as clients
	// get it.
	Definition, Listed []byte

	template *template // of a template, else nil
}

// Problem is something wrong with one item of a server.
type Problem struct {
	Server, Item string
	Reason       Reason
	Message      string
	// Dropped tells whether the item is missing from the catalog because of it.
	Dropped bool
}

// Card is a tool in brief.
type Card struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Server      string `json:"server"`
}

// Servers returns all servers in their order. The caller must not change it.
func (s *Snapshot) Servers() []*Server { return s.servers }

// Server returns the server of that name.
func (s *Snapshot) Server(name string) (*Server, bool) {
	srv, ok := s.byName[name]
	return srv, ok
}

// Tools returns all tools in their order, also those of servers that are not
// available now. The caller must not change it.
func (s *Snapshot) Tools() []*Entry { return s.tools.all }

// Tool returns the tool of that final name, also that of a server that is not
// available now.
func (s *Snapshot) Tool(name string) (*Entry, bool) {
	e, ok := s.tools.byName[name]
	return e, ok
}

// ServerTools returns the tools of one server by the server's own names, the
// namespaced store behind the final names.
func (s *Snapshot) ServerTools(server string) map[string]*Entry {
	out := map[string]*Entry{}
	for _, e := range s.tools.all {
		if e.Server.Config.Name == server {
			out[e.Original] = e
		}
	}
	return out
}

// Cards returns the listed tools in brief, in the order of the list.
func (s *Snapshot) Cards() []Card {
	out := make([]Card, 0, len(s.tools.all))
	for _, e := range s.tools.all {
		if e.Server.State == Ready {
			out = append(out, Card{Name: e.Name, Description: descriptionOf(e.Definition), Server: e.Server.Config.Name})
		}
	}
	return out
}

// Full returns the View of somebody who may see everything.
func (s *Snapshot) Full() *View { return s.full }

// target is where a server's direct calls go.
type target struct{ cluster, authority, path string }

// ClusterOf is [Server].Cluster of a server with this configuration: it tells one
// address of a server from another.
func ClusterOf(s *config.Server) string { return targetOf(s).cluster }

// targetOf derives the target from the configuration. The URL was checked by
// package config; one that does not parse gives an empty target, and calls take
// the broker's way, which reports it.
func targetOf(s *config.Server) target {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" {
		return target{}
	}
	id := s.URL
	if s.TLS != nil {
		id += "\x00" + s.TLS.CAFile + "\x00" + s.TLS.ServerName
	}
	sum := sha256.Sum256([]byte(id))
	return target{
		cluster:   "mcp_" + s.Name + "_" + hex.EncodeToString(sum[:4]),
		authority: strings.ToLower(u.Host),
		path:      u.RequestURI(),
	}
}

// build merges the entries into a Snapshot.
func build(order []*entry, routable func(string) bool) *Snapshot {
	s := &Snapshot{byName: make(map[string]*Server, len(order))}
	m := merger{snap: s}
	for _, e := range order {
		srv := &Server{
			Config: e.cfg, State: e.state, Reason: e.reason, Message: e.message, Since: e.since, Facts: e.facts, Info: e.catalog,
			Cluster: e.target.cluster, Authority: e.target.authority, Path: e.target.path,
		}
		srv.Logs = e.items != nil && e.items.logs
		srv.Routable = routable != nil && srv.Cluster != "" && routable(srv.Cluster)
		s.servers = append(s.servers, srv)
		s.byName[e.cfg.Name] = srv
		if e.items != nil {
			srv.Problems = append(srv.Problems, e.items.problems...)
			m.add(srv, e.items)
		}
	}
	s.full = newView(s)
	return s
}
