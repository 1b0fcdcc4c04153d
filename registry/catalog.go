package registry

// Item is one tool, prompt, resource or resource template as a server listed
// it. It is immutable: nobody changes the bytes of Raw.
type Item struct {
	// Name is the item's `name` (tools, prompts), `uri` (resources) or
	// `uriTemplate` (templates), unescaped.
	Name string
	// Raw is the JSON object as the server sent it.
	Raw []byte
}

// Catalog is everything that one server offers, all pages of its lists. It is
// immutable once it was given to the registry.
type Catalog struct {
	Tools, Prompts, Resources, Templates []Item
	// ServerInfo and Capabilities are the raw objects of the server's
	// InitializeResult; Instructions its text.
	ServerInfo, Capabilities []byte
	Instructions             string
}

// Facts are what was learnt about a server by talking to it.
type Facts struct {
	// Revision is the protocolVersion that the server agreed to.
	Revision string
	// Sessions tells whether the server gives out session ids.
	Sessions bool
	// LostStatus is the HTTP status with which the server answers a request
	// for a session that it does not know: 404 (as specified), 400 (as some
	// do), or 0 when it serves such requests.
	LostStatus int
	// Stream tells whether the server offers a GET stream.
	Stream bool
}

// State is how a server stands.
type State uint8

// The states.
const (
	// Connecting: not tried yet. Its tools are not listed.
	Connecting State = iota
	// Ready: connected, its catalog is current.
	Ready
	// Unavailable: tried without success, or lost. Its names stay taken.
	Unavailable
)

// States returns all states.
func States() []State { return []State{Connecting, Ready, Unavailable} }

func (s State) String() string { return [...]string{"connecting", "ready", "unavailable"}[s] }

// Reason says why a server or tool is not (fully) usable; the words are those
// of the MCPServer status conditions.
type Reason string

// The reasons.
const (
	ReasonNone                       Reason = ""
	ReasonUnreachable                Reason = "Unreachable"
	ReasonCredentialInvalid          Reason = "CredentialInvalid"
	ReasonProtocolVersionUnsupported Reason = "ProtocolVersionUnsupported"
	ReasonProtocolError              Reason = "ProtocolError"
	ReasonToolNameConflict           Reason = "ToolNameConflict"
	ReasonSchemaInvalid              Reason = "SchemaInvalid"
	ReasonNameInvalid                Reason = "NameInvalid"
	ReasonLimitExceeded              Reason = "LimitExceeded"
)

// Reasons returns all reasons but ReasonNone.
func Reasons() []Reason {
	return []Reason{
		ReasonUnreachable, ReasonCredentialInvalid, ReasonProtocolVersionUnsupported, ReasonProtocolError,
		ReasonToolNameConflict, ReasonSchemaInvalid, ReasonNameInvalid, ReasonLimitExceeded,
	}
}
