package demo

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const wait = 10 * time.Second

func start(t *testing.T) *Demo {
	t.Helper()
	// t.Context ends before the clients' cleanup, which needs the servers.
	d, err := Start(context.WithoutCancel(t.Context()), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// connect speaks the session era, as the gateway does.
func connect(t *testing.T, url string, opt *mcp.ClientOptions) (context.Context, *mcp.ClientSession) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	t.Cleanup(cancel)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opt)
	s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: tr}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return ctx, s
}

// call calls a tool and decodes its structured result into out, when that is
// not nil. It returns the text of an error result.
func call(ctx context.Context, t *testing.T, s *mcp.ClientSession, tool string, args map[string]any, out any) string {
	t.Helper()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	if r.IsError {
		return r.Content[0].(*mcp.TextContent).Text
	}
	if out != nil {
		raw, err := json.Marshal(r.StructuredContent)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, out))
	}
	return ""
}

func toolNames(ctx context.Context, t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	r, err := s.ListTools(ctx, nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
		assert.NotEmpty(t, tool.Description, tool.Name)
		assert.NotNil(t, tool.InputSchema, tool.Name)
		assert.NotNil(t, tool.Annotations, tool.Name)
	}
	return names
}

func TestClock(t *testing.T) {
	ctx, s := connect(t, start(t).Clock, nil)
	assert.NotEmpty(t, s.ID(), "it gives session ids")
	assert.Equal(t, []string{"convert", "countdown", "now"}, toolNames(ctx, t, s))

	var out timeOut
	assert.Empty(t, call(ctx, t, s, "now", map[string]any{"timezone": "Asia/Tokyo"}, &out))
	assert.True(t, strings.HasSuffix(out.Time, "+09:00"), out.Time)
	assert.InDelta(t, time.Now().Unix(), out.Unix, 60)
	assert.Empty(t, call(ctx, t, s, "now", nil, &out))
	assert.Equal(t, "UTC", out.Timezone)

	assert.Empty(t, call(ctx, t, s, "convert", map[string]any{"time": "2026-11-21T23:30:00+01:00", "timezone": "Asia/Tokyo"}, &out))
	assert.Equal(t, timeOut{Time: "2026-11-22T07:30:00+09:00", Timezone: "Asia/Tokyo", Weekday: "Sunday", Unix: 1795300200}, out)

	assert.Contains(t, call(ctx, t, s, "now", map[string]any{"timezone": "Mars/Olympus"}, nil), "IANA name")
	assert.Contains(t, call(ctx, t, s, "now", map[string]any{"timezone": "Local"}, nil), "IANA name")
	assert.Contains(t, call(ctx, t, s, "convert", map[string]any{"time": "noon", "timezone": "UTC"}, nil), "RFC 3339")
}

func TestCountdownReportsProgress(t *testing.T) {
	progress := make(chan float64, maxCountdown)
	ctx, s := connect(t, start(t).Clock, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Progress
		},
	})
	params := &mcp.CallToolParams{Name: "countdown", Arguments: map[string]any{"from": 3, "intervalMs": 1}}
	params.SetProgressToken("p")
	r, err := s.CallTool(ctx, params)
	require.NoError(t, err)
	assert.False(t, r.IsError)
	for _, want := range []float64{1, 2, 3} {
		select {
		case got := <-progress:
			assert.InDelta(t, want, got, 0)
		case <-ctx.Done():
			require.Fail(t, "no progress")
		}
	}
	assert.Contains(t, call(ctx, t, s, "countdown", map[string]any{"from": 61}, nil), "1 to 60")
	assert.Contains(t, call(ctx, t, s, "countdown", map[string]any{"from": 1, "intervalMs": -5}, nil), "1 to 60")
}

func TestNotes(t *testing.T) {
	ctx, s := connect(t, start(t).Notes, nil)
	assert.Equal(t, []string{"add_note", "delete_note", "list_notes", "show_drafts"}, toolNames(ctx, t, s))
	var list listOut
	assert.Empty(t, call(ctx, t, s, "list_notes", nil, &list))
	assert.Empty(t, list.Notes)

	var added note
	assert.Empty(t, call(ctx, t, s, "add_note", map[string]any{"title": "Milk", "text": "two litres"}, &added))
	assert.Equal(t, "note:///1", added.URI)
	assert.Empty(t, call(ctx, t, s, "list_notes", nil, &list))
	assert.Equal(t, []note{added}, list.Notes)

	resources, err := s.ListResources(ctx, nil)
	require.NoError(t, err)
	require.Len(t, resources.Resources, 1)
	assert.Equal(t, added.URI, resources.Resources[0].URI)
	templates, err := s.ListResourceTemplates(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, "note:///{id}", templates.ResourceTemplates[0].URITemplate)
	read, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: added.URI})
	require.NoError(t, err)
	assert.Equal(t, "two litres", read.Contents[0].Text)
	_, err = s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "note:///77"})
	require.Error(t, err)

	prompt, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "summarize_notes", Arguments: map[string]string{"style": "a poem"}})
	require.NoError(t, err)
	assert.Equal(t, "Summarize these notes as a poem.\n\n# Milk\ntwo litres\n", prompt.Messages[0].Content.(*mcp.TextContent).Text)

	assert.Empty(t, call(ctx, t, s, "delete_note", map[string]any{"id": added.ID}, nil))
	assert.Contains(t, call(ctx, t, s, "delete_note", map[string]any{"id": added.ID}, nil), "no note")
	resources, err = s.ListResources(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, resources.Resources)
}

func TestNotesAreBounded(t *testing.T) {
	ctx, s := connect(t, start(t).Notes, nil)
	assert.Contains(t, call(ctx, t, s, "add_note", map[string]any{"title": "", "text": "x"}, nil), "title")
	assert.Contains(t, call(ctx, t, s, "add_note", map[string]any{"title": "x", "text": strings.Repeat("x", maxText+1)}, nil), "at most")
	for range maxNotes {
		require.Empty(t, call(ctx, t, s, "add_note", map[string]any{"title": "x", "text": ""}, nil))
	}
	assert.Contains(t, call(ctx, t, s, "add_note", map[string]any{"title": "x", "text": ""}, nil), "delete one first")
}

func TestToolListChangesWhenToldTo(t *testing.T) {
	changed := make(chan struct{}, 10)
	url := start(t).Notes
	ctx, listener := connect(t, url, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	_, s := connect(t, url, nil)
	for _, on := range []bool{true, false} {
		assert.Empty(t, call(ctx, t, s, "show_drafts", map[string]any{"on": on}, nil))
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "not notified")
		}
		assert.Equal(t, on, len(toolNames(ctx, t, listener)) == 5)
	}
	assert.Empty(t, call(ctx, t, s, "show_drafts", map[string]any{"on": true}, nil))
	var out draftOut
	assert.Empty(t, call(ctx, t, s, "draft_note", map[string]any{"topic": "Trees"}, &out))
	assert.Contains(t, out.Text, "Trees")
}

func TestCloseEndsStreamsAndCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Start(ctx, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: d.Clock, HTTPClient: &http.Client{Transport: tr}, MaxRetries: -1}, nil)
	require.NoError(t, err)
	began := time.Now()
	cancel() // as good as Close
	d.Close()
	assert.Less(t, time.Since(began), stopTimeout+time.Second)
	require.Error(t, s.Ping(t.Context(), nil), "nobody is there any more")
	_ = s.Close() // it cannot end a session that is gone
}
