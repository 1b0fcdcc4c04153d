package registry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/registry"
)

func newRegistry(t *testing.T) (*registry.Registry, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return registry.New(slog.New(slog.NewTextHandler(&log, nil))), &log
}

func server(name string, prefix ...string) config.Server {
	s := config.Server{Name: name, URL: "http://127.0.0.1:1/mcp"}
	if len(prefix) > 0 {
		s.Prefix = &prefix[0]
	}
	return s
}

const schema = `"inputSchema":{"type":"object"}`

func tool(name, more string) registry.Item {
	raw := fmt.Sprintf(`{"name":%q,"description":"about %s",%s%s}`, name, name, schema, more)
	return registry.Item{Name: name, Raw: []byte(raw)}
}

func tools(names ...string) *registry.Catalog {
	c := &registry.Catalog{}
	for _, n := range names {
		c.Tools = append(c.Tools, tool(n, ""))
	}
	return c
}

// listed returns the names in a list, in order.
func listed(t *testing.T, r *registry.Registry, k registry.Kind) []string {
	t.Helper()
	var l map[string][]map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(r.Snapshot().Full().List(k), &l))
	names := []string{}
	for _, items := range l {
		for _, it := range items {
			for _, key := range []string{"uriTemplate", "uri", "name"} {
				if raw, ok := it[key]; ok {
					var s string
					require.NoError(t, json.Unmarshal(raw, &s))
					names = append(names, s)
					break
				}
			}
		}
	}
	return names
}

// G1, G2, G4, D1: a server's tools come and go with it, stored by server.
func TestAddAndRemoveServer(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("one"))
	assert.Empty(t, listed(t, r, registry.Tools), "nothing before the server was connected")
	r.SetReady("one", tools("a", "b"), registry.Facts{})
	r.Add(server("two"))
	r.SetReady("two", tools("a"), registry.Facts{})
	assert.Equal(t, []string{"one_a", "one_b", "two_a"}, listed(t, r, registry.Tools))

	store := r.Snapshot().ServerTools("two")
	require.Contains(t, store, "a")
	assert.Equal(t, "two_a", store["a"].Name)

	r.Remove("one")
	assert.Equal(t, []string{"two_a"}, listed(t, r, registry.Tools))
	_, ok := r.Snapshot().Tool("one_a")
	assert.False(t, ok)
	r.Remove("one") // again: nothing happens
	r.SetReady("one", tools("a"), registry.Facts{})
	assert.Equal(t, []string{"two_a"}, listed(t, r, registry.Tools), "a late report of a removed server")
}

// G3, G6, D4: the definition is kept as it came; the list has it under the new
// name, with its server, everything else the same bytes.
func TestDefinitionsKeepTheirBytes(t *testing.T) {
	raw := `{ "title":"T", "x-unknown":[1.50,9007199254740993,"\u00e9\/"], "name" : "na\u006de","inputSchema":{"type":"object","properties":{"z":{"default":12345678901234567890},"a":{}}},` +
		`"annotations":{"readOnlyHint":false},"_meta":{"k":1} , "description":"d"}`
	r, _ := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", &registry.Catalog{Tools: []registry.Item{{Name: "name", Raw: []byte(raw)}}}, registry.Facts{})
	e, ok := r.Snapshot().Tool("s_name")
	require.True(t, ok)
	assert.Equal(t, raw, string(e.Definition))
	want := strings.Replace(raw, `"na\u006de"`, `"s_name"`, 1)
	want = strings.Replace(want, `{"k":1}`, `{"patchbay.dev/server":"s","k":1}`, 1)
	assert.Equal(t, want, string(e.Listed))
	assert.Equal(t, `{"tools":[`+want+`]}`, string(r.Snapshot().Full().List(registry.Tools)))
}

// M1: each tool says where it is from, whatever its _meta was.
func TestSourceServer(t *testing.T) {
	for name, tc := range map[string]struct{ meta, want string }{
		"none":      {``, `,"_meta":{"patchbay.dev/server":"s"}}`},
		"empty":     {`,"_meta":{ }`, `,"_meta":{"patchbay.dev/server":"s"}}`},
		"something": {`,"_meta":{"a":1}`, `,"_meta":{"patchbay.dev/server":"s","a":1}}`},
		"a gateway": {`,"_meta":{"a":1,"patchbay.dev/server":"inner"}`, `,"_meta":{"a":1,"patchbay.dev/server":"s"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRegistry(t)
			r.Add(server("s"))
			r.SetReady("s", &registry.Catalog{Tools: []registry.Item{tool("x", tc.meta)}}, registry.Facts{})
			e, ok := r.Snapshot().Tool("s_x")
			require.True(t, ok)
			assert.Truef(t, strings.HasSuffix(string(e.Listed), tc.want), "%s", e.Listed)
			assert.True(t, json.Valid(e.Listed))
		})
	}
}

// D2, M2, K17: two servers without a prefix both work; who has a name first
// keeps it, the other is listed under its server's name and says so.
func TestNameConflict(t *testing.T) {
	r, log := newRegistry(t)
	r.Add(server("first", ""))
	r.Add(server("second", ""))
	r.SetReady("second", tools("same", "mine"), registry.Facts{})
	assert.Equal(t, []string{"same", "mine"}, listed(t, r, registry.Tools))
	r.SetReady("first", tools("same", "other"), registry.Facts{})
	assert.Equal(t, []string{"same", "other", "second_same", "mine"}, listed(t, r, registry.Tools),
		"the order of the configuration decides, not that of arrival")

	e, ok := r.Snapshot().Tool("same")
	require.True(t, ok)
	assert.Equal(t, "first", e.Server.Config.Name)
	e, ok = r.Snapshot().Tool("second_same")
	require.True(t, ok)
	assert.Equal(t, "same", e.Original)
	assert.Contains(t, string(e.Listed), `"name":"second_same"`)
	assert.Equal(t, registry.ReasonToolNameConflict, e.Server.Reason)
	assert.Contains(t, e.Server.Message, `server "first"`)
	assert.Contains(t, log.String(), "ToolNameConflict")

	r.SetUnavailable("first", registry.ReasonUnreachable, "gone")
	assert.Equal(t, []string{"second_same", "mine"}, listed(t, r, registry.Tools), "an unavailable server keeps its names")
}

// D12, D17, D18: an unavailable server's tools are not listed, but known.
func TestUnavailableServer(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", tools("a"), registry.Facts{Revision: "2025-06-18"})
	r.SetUnavailable("s", registry.ReasonUnreachable, "connection refused")
	assert.Empty(t, listed(t, r, registry.Tools))
	e, ok := r.Snapshot().Tool("s_a")
	require.True(t, ok)
	assert.Equal(t, registry.Unavailable, e.Server.State)
	assert.Equal(t, registry.ReasonUnreachable, e.Server.Reason)
	assert.Zero(t, e.Server.Listed)
	r.SetReady("s", tools("a"), registry.Facts{})
	assert.Equal(t, []string{"s_a"}, listed(t, r, registry.Tools))
}

// D14, D15, D16: a bad tool is dropped, logged and told; its server stays. A
// missing description becomes an empty one.
func TestSchemaChecks(t *testing.T) {
	item := func(name, rest string) registry.Item {
		return registry.Item{Name: name, Raw: []byte(fmt.Sprintf(`{"name":%q,%s}`, name, rest))}
	}
	deep := strings.Repeat(`{"properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40)
	bad := map[string]registry.Item{
		"missing":    item("missing", `"description":"d"`),
		"not-object": item("not-object", `"inputSchema":[]`),
		"no-type":    item("no-type", `"inputSchema":{}`),
		"wrong-type": item("wrong-type", `"inputSchema":{"type":"string"}`),
		"bad-type":   item("bad-type", `"inputSchema":{"type":"object","properties":{"a":{"type":"strin"}}}`),
		"bad-regex":  item("bad-regex", `"inputSchema":{"type":"object","properties":{"a":{"pattern":"("}}}`),
		"remote":     item("remote", `"inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}`),
		"file":       item("file", `"inputSchema":{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`),
		"deep":       item("deep", `"inputSchema":{"type":"object","properties":{"a":`+deep+`}}`),
		"bad name":   item("bad name", schema),
		"huge":       item("huge", schema+`,"x":"`+strings.Repeat("x", 300<<10)+`"`),
		"meta":       item("meta", schema+`,"_meta":[]`),
	}
	c := &registry.Catalog{Tools: []registry.Item{item("good", schema), item("good", schema)}}
	for _, it := range bad {
		c.Tools = append(c.Tools, it)
	}
	r, log := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", c, registry.Facts{})
	assert.Equal(t, []string{"s_good"}, listed(t, r, registry.Tools))
	e, _ := r.Snapshot().Tool("s_good")
	assert.Contains(t, string(e.Listed), `"description":""`)
	assert.Equal(t, registry.Ready, e.Server.State, "the server stays")

	dropped := map[string]string{}
	for _, p := range e.Server.Problems {
		assert.True(t, p.Dropped)
		assert.NotEmpty(t, p.Message)
		dropped[p.Item] = p.Message
	}
	for name := range bad {
		assert.Contains(t, dropped, name)
		assert.Contains(t, log.String(), name)
	}
	assert.Contains(t, dropped, "good", "the second of the same name")
}

// G7: the event says what was added, removed and changed, by listed name.
func TestEvents(t *testing.T) {
	r, _ := newRegistry(t)
	var got []registry.Change
	cancel := r.Subscribe(func(e registry.Event) {
		assert.NotSame(t, e.Before, e.After)
		got = e.Changes
	})
	r.Add(server("s"))
	assert.Empty(t, got)
	r.SetReady("s", tools("a", "b"), registry.Facts{})
	assert.Equal(t, []registry.Change{{Kind: registry.Tools, Added: []string{"s_a", "s_b"}}}, got)

	c := tools("b", "c")
	c.Tools[0].Raw = bytes.Replace(c.Tools[0].Raw, []byte("about b"), []byte("more about b"), 1)
	c.Prompts = []registry.Item{{Name: "p", Raw: []byte(`{"name":"p"}`)}}
	c.Resources = []registry.Item{{Name: "file:///x", Raw: []byte(`{"uri":"file:///x","name":"x"}`)}}
	r.SetReady("s", c, registry.Facts{})
	assert.Equal(t, []registry.Change{
		{Kind: registry.Tools, Added: []string{"s_c"}, Removed: []string{"s_a"}, Changed: []string{"s_b"}},
		{Kind: registry.Prompts, Added: []string{"s_p"}},
		{Kind: registry.Resources, Added: []string{"s+file:///x"}},
	}, got)

	r.SetReady("s", c, registry.Facts{Stream: true})
	assert.Empty(t, got, "the same catalog is no change")
	r.SetUnavailable("s", registry.ReasonUnreachable, "")
	assert.Equal(t, []string{"s_b", "s_c"}, got[0].Removed)
	cancel()
	got = nil
	r.Remove("s")
	assert.Nil(t, got)
}

func TestRoutable(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", tools("a"), registry.Facts{})
	srv, _ := r.Snapshot().Server("s")
	assert.False(t, srv.Direct(), "no Envoy knows the cluster yet")
	r.SetRoutable(func(cluster string) bool { return cluster == srv.Cluster })
	srv, _ = r.Snapshot().Server("s")
	assert.True(t, srv.Direct())

	moved := server("s")
	moved.URL = "http://127.0.0.1:2/mcp"
	r.Add(moved)
	now, _ := r.Snapshot().Server("s")
	assert.NotEqual(t, srv.Cluster, now.Cluster, "another address is another cluster")
	assert.False(t, now.Direct())

	slow := server("s")
	slow.Way = config.WayBroker
	r.Add(slow)
	now, _ = r.Snapshot().Server("s")
	assert.False(t, now.Direct())
}

// G7: what did not change keeps its bytes, what did is rendered anew, also under
// another prefix.
func TestChangedItemsAreRenderedAnew(t *testing.T) {
	r, log := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", &registry.Catalog{Tools: []registry.Item{tool("a", ""), tool("b", ""), tool("c", "")}}, registry.Facts{})
	before := r.Snapshot()
	var events []registry.Event
	r.Subscribe(func(ev registry.Event) { events = append(events, ev) })
	bad := registry.Item{Name: "c", Raw: []byte(`{"name":"c","inputSchema":{"type":"array"}}`)}
	r.SetReady("s", &registry.Catalog{Tools: []registry.Item{tool("b", `,"x":1`), tool("a", ""), tool("a", ""), bad}}, registry.Facts{})
	require.Len(t, events, 1)
	assert.Equal(t, []registry.Change{{Kind: registry.Tools, Removed: []string{"s_c"}, Changed: []string{"s_b"}}}, events[0].Changes)
	old, _ := before.Tool("s_a")
	now, _ := r.Snapshot().Tool("s_a")
	assert.Equal(t, string(old.Listed), string(now.Listed))
	assert.Contains(t, log.String(), "twice", "the second a")
	r.Add(server("s", "p-"))
	assert.Equal(t, []string{"p-b", "p-a"}, listed(t, r, registry.Tools))
	r.SetReady("s", &registry.Catalog{Tools: []registry.Item{tool("a", "")}}, registry.Facts{})
	assert.Equal(t, []string{"p-a"}, listed(t, r, registry.Tools))
}

// A restored catalog holds its names, and gives way to what the server says.
func TestRestore(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("a", ""))
	r.Add(server("b", ""))
	r.Restore("a", tools("x"), registry.Facts{Revision: "2025-06-18"})
	r.Restore("none", tools("x"), registry.Facts{})
	r.SetReady("b", tools("x"), registry.Facts{})
	assert.Equal(t, []string{"b_x"}, listed(t, r, registry.Tools), "x is a's, though a is not there yet")
	r.SetReady("a", tools("y"), registry.Facts{})
	assert.Equal(t, []string{"y", "x"}, listed(t, r, registry.Tools))
	r.Restore("a", tools("z"), registry.Facts{})
	assert.Equal(t, []string{"y", "x"}, listed(t, r, registry.Tools), "too late")
}

// Since is when a state or its reason began.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t)
		since := func() time.Duration {
			srv, _ := r.Snapshot().Server("s")
			return time.Since(srv.Since)
		}
		r.Add(server("s"))
		time.Sleep(time.Second)
		assert.Equal(t, time.Second, since())
		r.SetReady("s", tools("a"), registry.Facts{})
		time.Sleep(time.Second)
		r.SetReady("s", tools("b"), registry.Facts{})
		r.Add(server("s", "p"))
		assert.Equal(t, time.Second, since(), "another catalog is no other state")
		r.SetUnavailable("s", registry.ReasonUnreachable, "")
		time.Sleep(time.Second)
		r.SetUnavailable("s", registry.ReasonCredentialInvalid, "")
		assert.Zero(t, since(), "another reason")
	})
}

func TestReorder(t *testing.T) {
	r, _ := newRegistry(t)
	for _, n := range []string{"a", "b", "c"} {
		r.Add(server(n, ""))
		r.SetReady(n, tools("x"), registry.Facts{})
	}
	r.Reorder([]string{"c", "a", "b"})
	e, _ := r.Snapshot().Tool("x")
	assert.Equal(t, "c", e.Server.Config.Name)
}

// M10, M11: URIs carry their server; bare ones find it.
func TestResources(t *testing.T) {
	r, _ := newRegistry(t)
	res := func(uri string) registry.Item {
		return registry.Item{Name: uri, Raw: []byte(fmt.Sprintf(`{"uri":%q,"name":"n"}`, uri))}
	}
	for _, n := range []string{"one", "two"} {
		r.Add(server(n))
	}
	r.Add(server("bare", ""))
	r.SetReady("one", &registry.Catalog{
		Resources: []registry.Item{res("file:///a?x=1&y=2"), res("ui://widget/a"), res("file:///both")},
		Templates: []registry.Item{{Name: "note:///{id}", Raw: []byte(`{"uriTemplate":"note:///{id}","name":"n"}`)}},
	}, registry.Facts{})
	r.SetReady("two", &registry.Catalog{Resources: []registry.Item{res("file:///both")}}, registry.Facts{})
	r.SetReady("bare", &registry.Catalog{Resources: []registry.Item{res("file:///b")}}, registry.Facts{})
	assert.Equal(t, []string{"one+file:///a?x=1&y=2", "ui://one.widget/a", "one+file:///both", "two+file:///both", "file:///b"},
		listed(t, r, registry.Resources))
	assert.Equal(t, []string{"one+note:///{id}"}, listed(t, r, registry.Templates))

	for uri, want := range map[string]string{
		"one+file:///a?x=1&y=2": "one file:///a?x=1&y=2",
		"file:///a?x=1&y=2":     "one file:///a?x=1&y=2",
		"ui://one.widget/a":     "one ui://widget/a",
		"ui://widget/a":         "one ui://widget/a",
		"two+anything://x":      "two anything://x",
		"file:///b":             "bare file:///b",
		"note:///7":             "one note:///7",
		"file:///both":          "one,two file:///both",
		"file:///none":          " file:///none",
		"git+ssh://x":           " git+ssh://x",
		"bare+file:///b":        " bare+file:///b",
	} {
		bare, owners := r.Snapshot().Full().Resource(uri)
		var names []string
		for _, o := range owners {
			names = append(names, o.Config.Name)
		}
		assert.Equal(t, want, strings.Join(names, ",")+" "+bare, uri)
	}
}

// G5: a card is name, description and server, for listed tools only.
func TestCards(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("one"))
	r.Add(server("gone"))
	r.SetReady("one", tools("a"), registry.Facts{})
	r.SetReady("gone", tools("b"), registry.Facts{})
	r.SetUnavailable("gone", registry.ReasonUnreachable, "")
	assert.Equal(t, []registry.Card{{Name: "one_a", Description: "about a", Server: "one"}}, r.Snapshot().Cards())
}
