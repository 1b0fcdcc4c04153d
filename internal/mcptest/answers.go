package mcptest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"patchbay.dev/internal/mcp"
)

// DefaultTools is the first page of tools/list unless a test says otherwise:
// echo returns its arguments' bytes, add the sum of two integers.
const DefaultTools = `[` +
	`{"name":"echo","description":"Returns its arguments.","inputSchema":{"type":"object"},"x-unknown":{"big":9007199254740993}},` +
	`{"name":"add","description":"Adds two integers.","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}}` +
	`]`

// Tool returns the raw definition of a tool without arguments.
func Tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"The tool %s.","inputSchema":{"type":"object"}}`, name, name)
}

// Page returns one page of a list: the raw items as a JSON array.
func Page(items ...string) string { return "[" + strings.Join(items, ",") + "]" }

// answer is the default for every method.
func (s *Server) answer(w http.ResponseWriter, r *Request) {
	switch r.Method {
	case mcp.MethodInitialize:
		s.initialize(w, r)
	case mcp.MethodPing, mcp.MethodSetLevel, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		s.Reply(w, r, `{}`)
	case mcp.MethodToolsList:
		s.list(w, r, "tools")
	case mcp.MethodPromptsList:
		s.list(w, r, "prompts")
	case mcp.MethodResourcesList:
		s.list(w, r, "resources")
	case mcp.MethodTemplatesList:
		s.list(w, r, "resourceTemplates")
	case mcp.MethodToolsCall:
		s.call(w, r)
	case mcp.MethodPromptsGet:
		s.Reply(w, r, `{"messages":[{"role":"user","content":{"type":"text","text":`+quote(string(r.Params))+`}}]}`)
	case mcp.MethodResourcesRead:
		s.read(w, r)
	case mcp.MethodComplete:
		s.Reply(w, r, `{"completion":{"values":["one","two"],"hasMore":false}}`)
	default:
		s.Fail(w, r, mcp.CodeMethodNotFound, "Method not found: "+r.Method)
	}
}

func (s *Server) initialize(w http.ResponseWriter, r *Request) {
	var p struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(r.Params, &p) // a wrong one counts as an unknown version
	version := s.ProtocolVersion
	if version == "" {
		version = mcp.Negotiate(p.ProtocolVersion).String()
	}
	s.mu.Lock()
	s.inits++
	s.mu.Unlock()
	if s.Sessions {
		w.Header().Set(mcp.HeaderSessionID, s.openSession())
	}
	instructions := ""
	if s.Instructions != "" {
		instructions = `,"instructions":` + quote(s.Instructions)
	}
	s.Reply(w, r, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":%q,"version":%q}%s}`,
		version, s.capabilities(), s.Name, s.Version, instructions))
}

func (s *Server) openSession() string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = true
	return id
}

func (s *Server) capabilities() string {
	if s.Capabilities != "" {
		return s.Capabilities
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var caps []string
	if s.lists[mcp.MethodToolsList] != nil {
		caps = append(caps, `"tools":{"listChanged":true}`)
	}
	if s.lists[mcp.MethodPromptsList] != nil {
		caps = append(caps, `"prompts":{"listChanged":true}`)
	}
	if s.lists[mcp.MethodResourcesList] != nil || s.lists[mcp.MethodTemplatesList] != nil {
		caps = append(caps, `"resources":{"listChanged":true,"subscribe":true}`)
	}
	return "{" + strings.Join(caps, ",") + "}"
}

// list answers a page: the cursor is the number of the page.
func (s *Server) list(w http.ResponseWriter, r *Request, member string) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(r.Params, &p) // no params: the first page
	s.mu.Lock()
	pages := s.lists[r.Method]
	s.mu.Unlock()
	n := 0
	if p.Cursor != "" {
		var err error
		if n, err = strconv.Atoi(p.Cursor); err != nil || n < 0 || n >= len(pages) {
			s.Fail(w, r, mcp.CodeInvalidParams, "Invalid cursor")
			return
		}
	}
	page, next := "[]", ""
	if n < len(pages) {
		page = pages[n]
	}
	if n+1 < len(pages) {
		next = fmt.Sprintf(`,"nextCursor":"%d"`, n+1)
	}
	s.Reply(w, r, fmt.Sprintf(`{%q:%s%s}`, member, page, next))
}

func (s *Server) call(w http.ResponseWriter, r *Request) {
	args := r.Arguments()
	switch r.Tool() {
	case "echo":
		s.Reply(w, r, `{"content":[{"type":"text","text":`+quote(string(args))+`}],"structuredContent":`+string(args)+`}`)
	case "add":
		var in struct{ A, B int64 }
		if err := json.Unmarshal(args, &in); err != nil {
			s.Reply(w, r, `{"content":[{"type":"text","text":`+quote(err.Error())+`}],"isError":true}`)
			return
		}
		sum := strconv.FormatInt(in.A+in.B, 10)
		s.Reply(w, r, `{"content":[{"type":"text","text":"`+sum+`"}],"structuredContent":{"sum":`+sum+`}}`)
	default:
		if !s.listed(r.Tool()) {
			s.Fail(w, r, mcp.CodeInvalidParams, "Unknown tool: "+r.Tool())
			return
		}
		s.Reply(w, r, `{"content":[{"type":"text","text":`+quote(s.Name+" ran "+r.Tool())+`}]}`)
	}
}

// listed tells whether the name stands in some page of tools/list.
func (s *Server) listed(name string) bool {
	s.mu.Lock()
	pages := s.lists[mcp.MethodToolsList]
	s.mu.Unlock()
	for _, page := range pages {
		var tools []struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal([]byte(page), &tools) // a broken page lists nothing
		for _, t := range tools {
			if t.Name == name {
				return true
			}
		}
	}
	return false
}

func (s *Server) read(w http.ResponseWriter, r *Request) {
	var p struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		s.Fail(w, r, mcp.CodeInvalidParams, err.Error())
		return
	}
	s.Reply(w, r, `{"contents":[{"uri":`+quote(p.URI)+`,"text":`+quote(s.Name+" has "+p.URI)+`}]}`)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // cannot happen for a string
		return `""`
	}
	return string(b)
}
