package mcp

import "encoding/json"

// Capabilities are what a client of the session era declared that a server may
// ask of it (2025-11-25, Lifecycle, "Capability Negotiation"), one bit each: they
// travel in the session id.
type Capabilities uint32

// The capabilities. The bits are stable for ever. An empty `elicitation` object
// means form mode; it is kept apart, so that a backend gets what the client said.
const (
	CapElicitation Capabilities = 1 << iota
	CapElicitationForm
	CapElicitationURL
	CapSampling
	CapSamplingTools
	CapSamplingContext
	CapRoots
	CapRootsListChanged
)

// The requests that a server may send to a client.
const (
	MethodElicit        = "elicitation/create"
	MethodCreateMessage = "sampling/createMessage"
	MethodRootsList     = "roots/list"
)

// clientCapabilities is the object on the wire; a nil member was not declared.
type clientCapabilities struct {
	Elicitation *struct {
		Form *struct{} `json:"form,omitempty"`
		URL  *struct{} `json:"url,omitempty"`
	} `json:"elicitation,omitempty"`
	Sampling *struct {
		Tools   *struct{} `json:"tools,omitempty"`
		Context *struct{} `json:"context,omitempty"`
	} `json:"sampling,omitempty"`
	Roots *struct {
		ListChanged bool `json:"listChanged,omitempty"`
	} `json:"roots,omitempty"`
}

// ParseCapabilities reads the capabilities of an initialize request. Those that
// the gateway does not know are left out, because it could not relay their
// requests.
func ParseCapabilities(raw []byte) (Capabilities, error) {
	var w clientCapabilities
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &w); err != nil {
			return 0, err
		}
	}
	var c Capabilities
	set := func(declared bool, bit Capabilities) {
		if declared {
			c |= bit
		}
	}
	if e := w.Elicitation; e != nil {
		c |= CapElicitation
		set(e.Form != nil, CapElicitationForm)
		set(e.URL != nil, CapElicitationURL)
	}
	if s := w.Sampling; s != nil {
		c |= CapSampling
		set(s.Tools != nil, CapSamplingTools)
		set(s.Context != nil, CapSamplingContext)
	}
	if r := w.Roots; r != nil {
		c |= CapRoots
		set(r.ListChanged, CapRootsListChanged)
	}
	return c, nil
}

// JSON renders the capabilities for a backend.
func (c Capabilities) JSON() []byte {
	var w clientCapabilities
	if c&CapElicitation != 0 {
		w.Elicitation = &struct {
			Form *struct{} `json:"form,omitempty"`
			URL  *struct{} `json:"url,omitempty"`
		}{c.object(CapElicitationForm), c.object(CapElicitationURL)}
	}
	if c&CapSampling != 0 {
		w.Sampling = &struct {
			Tools   *struct{} `json:"tools,omitempty"`
			Context *struct{} `json:"context,omitempty"`
		}{c.object(CapSamplingTools), c.object(CapSamplingContext)}
	}
	if c&CapRoots != 0 {
		w.Roots = &struct {
			ListChanged bool `json:"listChanged,omitempty"`
		}{c&CapRootsListChanged != 0}
	}
	b, err := json.Marshal(w)
	if err != nil { // cannot happen for these types
		return []byte("{}")
	}
	return b
}

func (c Capabilities) object(bit Capabilities) *struct{} {
	if c&bit == 0 {
		return nil
	}
	return &struct{}{}
}

// CapAll is what a watcher declares: some servers list a tool only to clients
// that can be asked for what it needs.
const CapAll = CapElicitation | CapElicitationForm | CapElicitationURL | CapSampling | CapSamplingTools |
	CapSamplingContext | CapRoots | CapRootsListChanged

// CapAsks are the capabilities by which a server may ask the client for anything.
const CapAsks = CapElicitation | CapSampling | CapRoots

// Asks tells whether a server may ask the client for anything: then a call can
// have a request in the middle of its answer, which only the broker can carry.
func (c Capabilities) Asks() bool { return c&CapAsks != 0 }

// Allows tells whether the client declared what a server's request with the raw
// params needs.
func (c Capabilities) Allows(method string, params []byte) bool {
	switch method {
	case MethodElicit:
		var p struct {
			Mode string `json:"mode"`
		}
		_ = json.Unmarshal(params, &p) // without a mode it is a form
		if p.Mode == "url" {
			return c&CapElicitationURL != 0
		}
		return c&CapElicitationForm != 0 || c&CapElicitation != 0 && c&CapElicitationURL == 0
	case MethodCreateMessage:
		var p struct {
			Tools json.RawMessage `json:"tools"`
		}
		_ = json.Unmarshal(params, &p) // without tools it needs no more
		return c&CapSampling != 0 && (len(p.Tools) == 0 || c&CapSamplingTools != 0)
	case MethodRootsList:
		return c&CapRoots != 0
	}
	return false
}
