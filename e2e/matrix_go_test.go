//nolint:staticcheck // the 2025 revisions have what a later one deprecates (SA1019)
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// goClient takes the steps of clients/ with the Go SDK's client.
type goClient struct {
	s *mcp.ClientSession

	mu      sync.Mutex
	arrived map[string][]any // by mu: params of notifications that no step has waited for
	asked   []any            // by mu: the server's requests that no step has shown
	elicit  string           // by mu: what elicitations are answered with

	arrival chan struct{} // holds a value after a notification
}

// goSteps connects, takes the steps and closes the session.
func goSteps(t *testing.T, transport mcp.Transport, steps ...step) []stepResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &goClient{arrived: map[string][]any{}, arrival: make(chan struct{}, 1)}
	client := mcp.NewClient(&mcp.Implementation{Name: "patchbay-e2e-go", Version: "1.0.0"}, c.options())
	client.AddReceivingMiddleware(c.noteRoots)
	client.AddRoots(&mcp.Root{URI: "file:///home/ada", Name: "home"})
	s, err := client.Connect(ctx, transport, nil)
	require.NoError(t, err)
	c.s = s
	results := make([]stepResult, len(steps))
	for i, st := range steps {
		op, _ := st["op"].(string)
		text, err := json.Marshal(st)
		require.NoError(t, err)
		results[i] = c.take(ctx, op, text)
	}
	require.NoError(t, s.Close())
	return results
}

func (c *goClient) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
			Sampling:    &mcp.SamplingCapabilities{},
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.asked = append(c.asked, map[string]any{"method": "elicitation/create", "params": r.Params})
			if c.elicit == "accept" && r.Params.Mode != "url" {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
			}
			return &mcp.ElicitResult{Action: c.elicit}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.asked = append(c.asked, map[string]any{"method": "sampling/createMessage", "params": r.Params})
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "sampled by the client"}}, nil
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.arrive("notifications/tools/list_changed", map[string]any{})
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.arrive("notifications/resources/updated", r.Params)
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			c.arrive("notifications/message", r.Params)
		},
		ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
			c.arrive("notifications/elicitation/complete", r.Params)
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.arrive("notifications/progress", r.Params)
		},
	}
}

// noteRoots records that roots were asked for, which the SDK answers by itself.
func (c *goClient) noteRoots(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method == "roots/list" {
			c.mu.Lock()
			c.asked = append(c.asked, map[string]any{"method": method})
			c.mu.Unlock()
		}
		return next(ctx, method, r)
	}
}

func (c *goClient) arrive(method string, params any) {
	c.mu.Lock()
	c.arrived[method] = append(c.arrived[method], params)
	c.mu.Unlock()
	select {
	case c.arrival <- struct{}{}:
	default:
	}
}

func (c *goClient) waitFor(ctx context.Context, method, match string) (any, error) {
	for {
		if found := c.taken(method, match); found != nil {
			return found, nil
		}
		select {
		case <-c.arrival:
		case <-ctx.Done():
			return nil, fmt.Errorf("no %s with %q: %w", method, match, ctx.Err())
		}
	}
}

// taken removes and returns the first notification that contains the text.
func (c *goClient) taken(method, match string) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, params := range c.arrived[method] {
		if text, err := json.Marshal(params); err == nil && strings.Contains(string(text), match) {
			c.arrived[method] = slices.Delete(c.arrived[method], i, i+1)
			return params
		}
	}
	return nil
}

// goStep is a step as the Go client takes it.
type goStep struct {
	Op, Name, URI, Level, Method, Match, Elicit string
	Progress                                    bool
	Args                                        map[string]any
	Ref                                         *mcp.CompleteReference
	Argument                                    mcp.CompleteParamsArgument
	Context                                     map[string]string
	TimeoutMs                                   int
}

func (c *goClient) take(ctx context.Context, op string, text []byte) stepResult {
	var st goStep
	r := stepResult{Op: op}
	err := json.Unmarshal(text, &st)
	var result any
	if err == nil {
		timeout := 30 * time.Second
		if st.TimeoutMs > 0 {
			timeout = time.Duration(st.TimeoutMs) * time.Millisecond
		}
		stepCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		result, err = c.perform(stepCtx, &st)
	}
	if err == nil {
		r.Result, err = json.Marshal(result)
	}
	if err != nil {
		r.Error = &stepError{Message: err.Error()}
		var rpc *jsonrpc.Error
		if errors.As(err, &rpc) {
			r.Error = &stepError{Code: int(rpc.Code), Message: rpc.Message, Data: rpc.Data}
		}
	}
	return r
}

func (c *goClient) perform(ctx context.Context, st *goStep) (any, error) {
	s := c.s
	switch st.Op {
	case "connect":
		return s.InitializeResult(), nil
	case "ping":
		return struct{}{}, s.Ping(ctx, nil)
	case "listTools":
		return s.ListTools(ctx, nil)
	case "callTool":
		return c.callTool(ctx, st)
	case "listPrompts":
		return s.ListPrompts(ctx, nil)
	case "getPrompt":
		args := map[string]string{}
		for k, v := range st.Args {
			args[k] = fmt.Sprint(v)
		}
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: st.Name, Arguments: args})
	case "listResources":
		return s.ListResources(ctx, nil)
	case "listResourceTemplates":
		return s.ListResourceTemplates(ctx, nil)
	case "readResource":
		return s.ReadResource(ctx, &mcp.ReadResourceParams{URI: st.URI})
	case "subscribe":
		return struct{}{}, s.Subscribe(ctx, &mcp.SubscribeParams{URI: st.URI})
	case "unsubscribe":
		return struct{}{}, s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: st.URI})
	case "complete":
		params := &mcp.CompleteParams{Ref: st.Ref, Argument: st.Argument}
		if st.Context != nil {
			params.Context = &mcp.CompleteContext{Arguments: st.Context}
		}
		return s.Complete(ctx, params)
	case "setLevel":
		return struct{}{}, s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(st.Level)})
	case "waitFor":
		return c.waitFor(ctx, st.Method, st.Match)
	case "arrived":
		c.mu.Lock()
		defer c.mu.Unlock()
		arrived := c.arrived[st.Method]
		delete(c.arrived, st.Method)
		return map[string]any{"params": arrived}, nil
	case "asked":
		c.mu.Lock()
		defer c.mu.Unlock()
		asked := c.asked
		c.asked = nil
		return map[string]any{"requests": asked}, nil
	default:
		return nil, fmt.Errorf("unknown op %q", st.Op)
	}
}

// callTool gives the progress up to its total with the result: the SDK handles
// notifications beside the answer.
func (c *goClient) callTool(ctx context.Context, st *goStep) (any, error) {
	c.mu.Lock()
	c.elicit = "accept"
	if st.Elicit != "" {
		c.elicit = st.Elicit
	}
	c.mu.Unlock()
	params := &mcp.CallToolParams{Name: st.Name, Arguments: st.Args}
	if st.Args == nil {
		params.Arguments = map[string]any{}
	}
	if st.Progress {
		params.SetProgressToken("progress of " + st.Name)
	}
	result, err := c.s.CallTool(ctx, params)
	if err != nil || !st.Progress {
		return result, err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	var with map[string]any
	if err := json.Unmarshal(text, &with); err != nil {
		return nil, err
	}
	progress := []*mcp.ProgressNotificationParams{}
	for len(progress) == 0 || progress[len(progress)-1].Progress < progress[0].Total {
		p, err := c.waitFor(ctx, "notifications/progress", "")
		if err != nil {
			return nil, err
		}
		if params, ok := p.(*mcp.ProgressNotificationParams); ok {
			progress = append(progress, params)
		}
	}
	with["progress"] = progress
	return with, nil
}
