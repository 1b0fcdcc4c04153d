// Package private names what ext_proc, the Envoy configuration and the broker
// say to each other: headers and dynamic metadata that no client and no backend
// ever sees. It has no code and no state.
package private

// Headers, in the lower case that Envoy uses.
const (
	// HeaderPrefix is the prefix of every header of ours. Envoy removes such
	// headers from what clients send before anything looks at them.
	HeaderPrefix = "x-patchbay-"
	// HeaderCluster chooses the direct route and its cluster. Only ext_proc
	// sets it.
	HeaderCluster = "x-patchbay-cluster"
	// HeaderLost tells the direct route how this backend answers a lost session:
	// "404" (or absent), "400", or "0" when it serves such requests.
	HeaderLost = "x-patchbay-lost"
	// HeaderRecover carries the sealed recovery context of a direct call that
	// Envoy retries at the broker.
	HeaderRecover = "x-patchbay-recover"
)

// BrokerSession begins the session ids of clients whose every request takes the
// broker's way, so that Envoy need not ask ext_proc.
const BrokerSession = "b."

// Dynamic metadata that ext_proc leaves for the rest of Envoy.
const (
	// Namespace is the metadata namespace.
	Namespace = "patchbay"
	// KeyID is the request's raw JSON-RPC id, for local error replies.
	KeyID = "id"
	// KeyServer is the server's name.
	KeyServer = "server"
	// KeyTool is the tool's own name at the server, for the access log.
	KeyTool = "tool"
	// KeyAddress is which of the server's addresses the call must go to, as
	// "ip:port". Absent where the server's url names an IP address.
	KeyAddress = "address"
	// KeyRecover is the sealed recovery context.
	KeyRecover = "recover"
)

// Names within the Envoy configuration.
const (
	ClusterBroker  = "patchbay_broker"
	ClusterExtProc = "patchbay_extproc"
	ClusterXDS     = "patchbay_xds"
	RouteConfig    = "mcp"
)
