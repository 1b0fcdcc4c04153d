package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits on what the notes hold.
const (
	maxNotes = 100
	maxTitle = 200     // bytes
	maxText  = 8 << 10 // bytes
)

const (
	uriPrefix = "note:///"
	draftTool = "draft_note"
)

// notes is the server that keeps notes, in memory.
type notes struct {
	server *mcp.Server
	now    func() time.Time

	mu     sync.Mutex
	all    []note // guarded by mu; oldest first
	lastID int    // guarded by mu
	drafts bool   // guarded by mu: draft_note is listed
}

type note struct {
	ID      string `json:"id" jsonschema:"names the note in other tools"`
	URI     string `json:"uri" jsonschema:"names the note as a resource"`
	Title   string `json:"title" jsonschema:"the note's title"`
	Created string `json:"created" jsonschema:"when it was added, in RFC 3339"`

	text string
}

type addIn struct {
	Title string `json:"title" jsonschema:"a short title, at most 200 bytes"`
	Text  string `json:"text" jsonschema:"the text of the note, at most 8 KiB"`
}

type listOut struct {
	Notes []note `json:"notes" jsonschema:"all notes, oldest first"`
}

type deleteIn struct {
	ID string `json:"id" jsonschema:"the id of the note, as add_note and list_notes give it"`
}

type deleteOut struct {
	Deleted string `json:"deleted" jsonschema:"the id of the note that was deleted"`
}

type draftsIn struct {
	On bool `json:"on" jsonschema:"true lists the tool draft_note, false removes it"`
}

type draftsOut struct {
	On bool `json:"on" jsonschema:"whether draft_note is listed now"`
}

type draftIn struct {
	Topic string `json:"topic" jsonschema:"what the note is to be about, at most 200 bytes"`
}

type draftOut struct {
	Text string `json:"text" jsonschema:"an outline to fill in"`
}

func newNotes(now func() time.Time) *mcp.Server {
	n := &notes{now: now}
	n.server = mcp.NewServer(&mcp.Implementation{Name: "patchbay-demo-notes", Title: "Notes", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "Keeps short notes until the demo ends. Each note is a resource too.",
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{ListChanged: true},
			Prompts:   &mcp.PromptCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true},
		},
	})
	n.addTools()
	n.server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "note", Title: "A note", Description: "The text of a note, by its id.",
		MIMEType: "text/plain", URITemplate: uriPrefix + "{id}",
	}, n.read)
	n.server.AddPrompt(&mcp.Prompt{
		Name: "summarize_notes", Title: "Summarize the notes",
		Description: "Asks for a summary of all notes.",
		Arguments: []*mcp.PromptArgument{{
			Name: "style", Title: "Style", Description: "How to write it, such as \"one sentence\"; a short list when left out.",
		}},
	}, n.summarize)
	return n.server
}

func (n *notes) addTools() {
	yes, no := true, false
	mcp.AddTool(n.server, &mcp.Tool{
		Name: "add_note", Title: "Add a note",
		Description: "Keeps a note and returns its id and its resource URI.",
		Annotations: &mcp.ToolAnnotations{Title: "Add a note", DestructiveHint: &no, OpenWorldHint: &no},
	}, n.add)
	mcp.AddTool(n.server, &mcp.Tool{
		Name: "list_notes", Title: "List the notes",
		Description: "Lists all notes with their ids and titles, oldest first.",
		Annotations: &mcp.ToolAnnotations{Title: "List the notes", ReadOnlyHint: true, OpenWorldHint: &no},
	}, n.list)
	mcp.AddTool(n.server, &mcp.Tool{
		Name: "delete_note", Title: "Delete a note",
		Description: "Deletes a note for good.",
		Annotations: &mcp.ToolAnnotations{Title: "Delete a note", DestructiveHint: &yes, OpenWorldHint: &no},
	}, n.delete)
	mcp.AddTool(n.server, &mcp.Tool{
		Name: "show_drafts", Title: "Show or hide draft_note",
		Description: "Adds the tool draft_note to this server's tools or removes it, to see a tool list change.",
		Annotations: &mcp.ToolAnnotations{Title: "Show or hide draft_note", DestructiveHint: &no, IdempotentHint: true, OpenWorldHint: &no},
	}, n.showDrafts)
}

func (n *notes) add(_ context.Context, _ *mcp.CallToolRequest, in addIn) (*mcp.CallToolResult, note, error) {
	if in.Title == "" || len(in.Title) > maxTitle || len(in.Text) > maxText {
		return nil, note{}, fmt.Errorf("the title must have 1 to %d bytes, the text at most %d", maxTitle, maxText)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) >= maxNotes {
		return nil, note{}, fmt.Errorf("there are %d notes, which is as many as there may be: delete one first", maxNotes)
	}
	n.lastID++
	id := strconv.Itoa(n.lastID)
	added := note{
		ID: id, URI: uriPrefix + id, Title: in.Title, text: in.Text,
		Created: n.now().UTC().Format(time.RFC3339),
	}
	n.all = append(n.all, added)
	n.server.AddResource(&mcp.Resource{
		URI: added.URI, Name: "note-" + id, Title: in.Title, MIMEType: "text/plain", Size: int64(len(in.Text)),
	}, n.read)
	return nil, added, nil
}

func (n *notes) list(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, listOut, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return nil, listOut{Notes: append([]note{}, n.all...)}, nil // never null
}

func (n *notes) delete(_ context.Context, _ *mcp.CallToolRequest, in deleteIn) (*mcp.CallToolResult, deleteOut, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.all, func(a note) bool { return a.ID == in.ID })
	if i < 0 {
		return nil, deleteOut{}, fmt.Errorf("there is no note %.40q: list_notes gives the ids", in.ID)
	}
	n.server.RemoveResources(n.all[i].URI)
	n.all = slices.Delete(n.all, i, i+1)
	return nil, deleteOut{Deleted: in.ID}, nil
}

func (n *notes) showDrafts(_ context.Context, _ *mcp.CallToolRequest, in draftsIn) (*mcp.CallToolResult, draftsOut, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if in.On == n.drafts {
		return nil, draftsOut(in), nil // nothing changes, so nobody is notified
	}
	n.drafts = in.On
	if !in.On {
		n.server.RemoveTools(draftTool)
		return nil, draftsOut(in), nil
	}
	closed := false
	mcp.AddTool(n.server, &mcp.Tool{
		Name: draftTool, Title: "Draft a note",
		Description: "Returns an outline for a note. Listed only after show_drafts.",
		Annotations: &mcp.ToolAnnotations{Title: "Draft a note", ReadOnlyHint: true, OpenWorldHint: &closed},
	}, draft)
	return nil, draftsOut(in), nil
}

func draft(_ context.Context, _ *mcp.CallToolRequest, in draftIn) (*mcp.CallToolResult, draftOut, error) {
	if in.Topic == "" || len(in.Topic) > maxTitle {
		return nil, draftOut{}, fmt.Errorf("the topic must have 1 to %d bytes", maxTitle)
	}
	return nil, draftOut{Text: in.Topic + "\n\n- what it is\n- why it matters\n- what to do next\n"}, nil
}

func (n *notes) read(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.all, func(a note) bool { return a.URI == uri })
	if i < 0 {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: n.all[i].text}}}, nil
}

func (n *notes) summarize(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	style := req.Params.Arguments["style"]
	if style == "" {
		style = "a short list"
	}
	if len(style) > maxTitle {
		return nil, fmt.Errorf("style must have at most %d bytes", maxTitle)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Summarize these notes as %s.\n", style)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.all {
		fmt.Fprintf(&b, "\n# %s\n%s\n", a.Title, a.text)
	}
	return &mcp.GetPromptResult{
		Description: "A summary of all notes",
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: b.String()}}},
	}, nil
}
