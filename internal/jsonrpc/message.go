package jsonrpc

// Limits on what a stranger may send. The length of the whole text is the
// caller's to limit.
const (
	// MaxDepth is how many levels of objects and arrays may stand in each
	// other; the message itself is the first.
	MaxDepth = 64
	// MaxID is the longest id in bytes, quotes included.
	MaxID = 1 << 10
	// MaxMethod is the longest method in bytes, decoded.
	MaxMethod = 256
)

// Span is a half-open range of byte offsets, [Start, End). The zero Span means
// that the thing is absent.
type Span struct{ Start, End int }

// Of returns the bytes of raw that the span covers; they alias raw. An absent
// span gives nil.
func (s Span) Of(raw []byte) []byte {
	if !s.Present() {
		return nil
	}
	return raw[s.Start:s.End:s.End]
}

// Present tells whether the span covers anything.
func (s Span) Present() bool { return s.End > s.Start }

// Text is a JSON string: where it stands, quotes included, and what it says
// once decoded.
type Text struct {
	Span
	Value string
}

// Kind is what a message is (JSON-RPC 2.0, sections 4 and 5).
type Kind uint8

// The kinds. The zero Kind is no message.
const (
	// Request has a method and an id.
	Request Kind = iota + 1
	// Notification has a method and no id.
	Notification
	// Response has an id and either a result or an error.
	Response
)

func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "invalid"
}

// Message says where the parts of one message stand. All spans are offsets in
// Raw, and absent where the message has no such member.
type Message struct {
	// Raw is what was scanned. The Message keeps no copy.
	Raw  []byte
	Kind Kind
	// ID is the raw id, a string with its quotes or an integer of any size.
	ID     Span
	Method Text
	// Params is the params object.
	Params Span
	// Name and URI are params.name and params.uri, absent when not strings.
	Name, URI Text
	// RefType, RefName and RefURI are params.ref.type, .name and .uri
	// (completion/complete), absent when not strings.
	RefType, RefName, RefURI Text
	// Cursor is params.cursor of any type but null and the empty string, which
	// ask for the first page.
	Cursor Span
	// Meta is params._meta, absent when not an object.
	Meta Span
	// ProgressToken is params._meta.progressToken and RequestID is
	// params.requestId (notifications/cancelled): strings with their quotes, or
	// numbers; absent when anything else.
	ProgressToken, RequestID Span
	// Result and Error are the values of a Response, of any type.
	Result, Error Span
}
