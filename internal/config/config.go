// Package config reads the gateway's configuration: `patchbay.yaml`, strict and
// with positions in its errors, and the `mcpServers` JSON that desktop clients
// use. It holds types and checks; it opens no connection and starts nothing.
//
// Flow: the bytes become one small tree of nodes with positions, whatever the
// format (tree.go, tree_yaml.go, tree_json.go); the tree is decoded into Config
// by reflection (decode.go), or, for `mcpServers`, entry by entry (desktop.go);
// then the values are checked and the environment is filled in (check.go,
// expand.go). Every step reports into one list of problems, so that a user sees
// all mistakes at once. The comments of the types below are the reference
// manual: docs/config.md and docs/config.schema.json are generated from them.
//
// Concurrency: the functions keep no state and may be called at any time. A
// Config belongs to whoever got it; it is not changed afterwards.
package config

import "time"

// Config is one whole configuration, checked and with every default filled in.
type Config struct {
	// Listen is the address of the MCP endpoint, "host:port". The host is an IP
	// address, "localhost", or empty for all addresses. The path is /mcp.
	Listen string `yaml:"listen,omitempty" json:"listen,omitempty"`
	// Admin is the address of /metrics, /healthz, /readyz and /api/v1, "host:port", with
	// a host as in listen.
	Admin string `yaml:"admin,omitempty" json:"admin,omitempty"`
	// TLS makes the endpoint https.
	TLS *ListenerTLS `yaml:"tls,omitempty" json:"tls,omitempty"`
	// BodyLimit is the largest request body, in bytes or with a unit ("4MiB");
	// a larger one is 413. From 1KiB to 64MiB.
	BodyLimit int64 `yaml:"bodyLimit,omitempty" json:"bodyLimit,omitempty" config:"size" jsonschema:"oneof_type=integer;string"`
	// PageSize is how many items one page of a list has; 0 is all in one page.
	// Pages are ordered by name. Some clients read the first page only.
	PageSize int `yaml:"pageSize,omitempty" json:"pageSize,omitempty" jsonschema:"minimum=0,maximum=10000"`
	// Origins are the web origins whose pages may speak to the endpoint, such
	// as "https://app.example"; "http://localhost:*" is one with any port, "*"
	// is every origin. Requests with another Origin header get 403, so that a
	// foreign page cannot use a user's gateway; requests without one come from
	// no page. The list replaces the default, which is the pages of programs on
	// the user's own machine: "http://localhost:*", "http://127.0.0.1:*" and
	// "http://[::1]:*".
	Origins []string `yaml:"origins,omitempty" json:"origins,omitempty"`
	// StateDir holds what must survive a restart (session keys, ended sessions,
	// the last catalogs).
	// Default: $STATE_DIRECTORY, else $XDG_STATE_HOME/patchbay, else
	// ~/.local/state/patchbay.
	StateDir string `yaml:"stateDir,omitempty" json:"stateDir,omitempty"`
	// Sessions says how client sessions are kept.
	Sessions Sessions `yaml:"sessions,omitempty" json:"sessions,omitempty"`
	// Calls says what is observed of calls to the servers.
	Calls Calls `yaml:"calls,omitempty" json:"calls,omitempty"`
	// Servers are the MCP servers behind the endpoint. Their order decides who
	// keeps a name that two of them have.
	Servers []Server `yaml:"servers,omitempty" json:"servers,omitempty"`
	// VirtualServers are named selections of the tools. They have no effect
	// yet; a file that has them gets a warning.
	VirtualServers []VirtualServer `yaml:"virtualServers,omitempty" json:"virtualServers,omitempty"`
}

// VirtualServer is a named selection of the tools.
type VirtualServer struct {
	// Name is the name of the selection.
	Name string `yaml:"name" json:"name"`
	// Tools are names of tools; "*" stands for any characters.
	Tools []string `yaml:"tools,omitempty" json:"tools,omitempty"`
}

// Calls says what is observed of calls to the servers.
type Calls struct {
	// Direct makes Envoy report what came of the calls that go straight to a
	// server. Without it their duration and outcome are not measured, a server
	// is not told of a call that timed out, and a client whose event stream
	// broke off is not told why. It costs about a tenth of a call.
	Direct bool `yaml:"direct,omitempty" json:"direct,omitempty"`
	// Log is a file that gets one JSON line for each call; "-" is standard
	// error, nothing means none.
	Log string `yaml:"log,omitempty" json:"log,omitempty"`
}

// ListenerTLS is the certificate of the endpoint.
type ListenerTLS struct {
	// CertFile is a PEM file with the certificate chain.
	CertFile string `yaml:"certFile" json:"certFile"`
	// KeyFile is a PEM file with the private key.
	KeyFile string `yaml:"keyFile" json:"keyFile"`
}

// Sessions says how client sessions are kept.
type Sessions struct {
	// KeyFile holds the keys that seal session ids; made when missing. A
	// relative path is taken from stateDir.
	KeyFile string `yaml:"keyFile,omitempty" json:"keyFile,omitempty"`
	// Store is where what only memory holds is kept: "memory".
	Store string `yaml:"store,omitempty" json:"store,omitempty" jsonschema:"enum=memory"`
	// Lifetime is how long a session id is valid after initialize.
	Lifetime Duration `yaml:"lifetime,omitempty" json:"lifetime,omitempty"`
	// IdleTimeout is after how long without a request a session's memory and
	// backend sessions are freed. The id stays valid.
	IdleTimeout Duration `yaml:"idleTimeout,omitempty" json:"idleTimeout,omitempty"`
}

// Way is how calls reach a server.
type Way string

// The ways.
const (
	// WayAuto sends calls directly from Envoy to the server where possible.
	WayAuto Way = "auto"
	// WayBroker sends every call through the broker, for servers whose every
	// failure must be told inside the stream.
	WayBroker Way = "broker"
)

// Server is one MCP server.
type Server struct {
	// Name identifies the server: [a-z][a-z0-9-]*, at most 40 characters.
	Name string `yaml:"name" json:"name" jsonschema:"pattern=^[a-z][a-z0-9-]*$,maxLength=40"`
	// URL is the server's MCP endpoint, http or https (streamable HTTP).
	// "${NAME}" is replaced from the environment, "$${" stands for "${".
	URL string `yaml:"url" json:"url"`
	// Prefix is put before the names of its tools and prompts: at most 64 of
	// [A-Za-z0-9_.-]. Without this key it is "<name>_"; "" is no prefix.
	Prefix *string `yaml:"prefix,omitempty" json:"prefix,omitempty" jsonschema:"pattern=^[A-Za-z0-9_.-]*$,maxLength=64"`
	// Headers are sent to the server with every request, for instance its
	// credential. "${NAME}" is replaced from the environment, "$${" stands for
	// "${".
	Headers map[string]string `yaml:"headers,omitempty" json:"headers,omitempty"`
	// Timeout bounds one call; 0 is no limit.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Poll is how often the lists of a server that cannot notify are fetched.
	Poll Duration `yaml:"poll,omitempty" json:"poll,omitempty"`
	// Way is how calls reach the server: "auto" sends them directly from Envoy
	// where possible, "broker" sends every call through the broker.
	Way Way `yaml:"way,omitempty" json:"way,omitempty" jsonschema:"enum=auto,enum=broker"`
	// TLS changes how an https server is verified.
	TLS *ServerTLS `yaml:"tls,omitempty" json:"tls,omitempty"`
	// Group is the group that the server belongs to. It has no effect yet; a
	// file that has it gets a warning.
	Group string `yaml:"group,omitempty" json:"group,omitempty"`
	// Labels are for selecting servers. They have no effect yet; a file that
	// has them gets a warning.
	Labels map[string]string `yaml:"labels,omitempty" json:"labels,omitempty"`
}

// ServerTLS changes how an https server is verified. It always is.
type ServerTLS struct {
	// CAFile is a PEM file with the authorities to trust instead of the
	// system's.
	CAFile string `yaml:"caFile,omitempty" json:"caFile,omitempty"`
	// ServerName is the name to expect in the certificate instead of the
	// URL's host.
	ServerName string `yaml:"serverName,omitempty" json:"serverName,omitempty"`
}

// ToolPrefix returns the prefix in force.
func (s *Server) ToolPrefix() string {
	if s.Prefix != nil {
		return *s.Prefix
	}
	return s.Name + "_"
}

// Duration is a time.Duration written as in Go: "30s", "1h30m".
type Duration time.Duration
