package registry_test

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/yosida95/uritemplate/v3"

	"patchbay.dev/registry"
)

// FuzzURI: three servers offer some of two URIs and a template. Whatever they
// are, what is listed leads back to who listed it and to its own URI, and any
// other URI leads only where a server's name, its list or its template says.
//
// The seven lowest bits of who: which server offers uri and other (two bits
// each), and the order of the servers. The next three: who offers the template.
func FuzzURI(f *testing.F) {
	long := "x:" + strings.Repeat("a", 8<<10-2)
	f.Add("one", "file:///A", "ui://w/x", "note://{id}", "7", "file:///A", uint16(0x3ff))
	f.Add("git", "git+ssh://a", "ssh://a", "log://{+path}/x{?q,r}", "a/b|é", "git+ssh://a", uint16(0x39b))
	f.Add("a-b", "a-b+x:y", "ui://a-b.w", "ui://{host}{/rest*}", "w|1", "ui://a-b.w", uint16(0x03f))
	f.Add("one", long, long+"a", "{+all}:any{#f:3}{.x}{;y}{&z}", "x:y", "one+"+long, uint16(0x0ff))
	f.Add("one", "x:\"\\\u2028<&>", "two+one+x:", "é{", "", "two+", uint16(0x155))
	f.Add("one", "x:y", "note://7", "note://{id}{end}", "7|", "note://7", uint16(1<<1|1<<8)) // a list goes before templates
	f.Add("one", "a:b", "a:c", "note://{id}/x", "7", "note://7", uint16(1<<7))
	f.Fuzz(func(t *testing.T, name, uri, other, template, values, ask string, who uint16) {
		for _, s := range []string{uri, other, template, values, ask} {
			if !utf8.ValidString(s) || len(s) > 16<<10 {
				return // no JSON text says it, or it only takes time
			}
		}
		w := newURIs(t, name, uri, other, template, who)
		w.checkListed()
		w.checkTemplates(template, values)
		w.checkAsked(ask)
		for _, name := range w.order { // what is near to something
			w.checkAsked(name + "+" + ask)
			w.checkAsked("ui://" + name + "." + ask)
		}
		w.checkAsked(uri)
		w.checkAsked(other)
	})
}

// uris is a catalog of three servers, and what they were told to offer.
type uris struct {
	t         *testing.T
	view      *registry.View
	order     []string             // the servers' names
	resources map[string][]string  // by server: what it offers
	templates map[string]string    // by server; only who has one
	lists     map[string]listedURI // by the URI that clients see
	dropped   map[string]int       // by server: how many items it was said to miss
}

// listedURI is who lists a URI, and what the server calls it.
type listedURI struct{ server, own string }

// without is the server that has no prefix.
const without = "plain"

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

func newURIs(t *testing.T, name, uri, other, tmpl string, who uint16) *uris {
	if !serverName.MatchString(name) || name == "two" || name == without {
		name = "one"
	}
	w := &uris{
		t: t, order: []string{name, "two", without},
		resources: map[string][]string{}, templates: map[string]string{}, dropped: map[string]int{},
	}
	if who&(1<<6) != 0 {
		slices.Reverse(w.order)
	}
	r := registry.New(slog.New(slog.DiscardHandler))
	for i, name := range w.order {
		s := server(name)
		if name == without {
			s = server(name, "")
		}
		r.Add(s)
		c := &registry.Catalog{}
		for j, u := range []string{uri, other} {
			if who>>(2*i+j)&1 != 0 {
				w.resources[name] = append(w.resources[name], u)
				c.Resources = append(c.Resources, registry.Item{Name: u, Raw: object(t, "uri", u)})
			}
		}
		if who>>(7+i)&1 != 0 {
			w.templates[name] = tmpl
			c.Templates = []registry.Item{{Name: tmpl, Raw: object(t, "uriTemplate", tmpl)}}
		}
		r.SetReady(name, c, registry.Facts{})
	}
	w.view = r.Snapshot().Full()
	for _, s := range r.Snapshot().Servers() {
		for _, p := range s.Problems {
			require.True(t, p.Dropped)
			require.LessOrEqual(t, len(p.Item), 8<<10)
			w.dropped[s.Config.Name]++
		}
	}
	return w
}

func object(t *testing.T, key, value string) []byte {
	raw, err := json.Marshal(map[string]string{key: value, "name": "n"})
	require.NoError(t, err)
	return raw
}

// seen decodes a list as a client does: who lists each value of key.
func (w *uris) seen(k registry.Kind, key string) (values, servers []string) {
	var l map[string][]map[string]json.RawMessage
	require.NoError(w.t, json.Unmarshal(w.view.List(k), &l))
	for _, items := range l {
		for _, it := range items {
			var value string
			var meta map[string]string
			require.NoError(w.t, json.Unmarshal(it[key], &value))
			require.NoError(w.t, json.Unmarshal(it["_meta"], &meta))
			values, servers = append(values, value), append(servers, meta[registry.ServerMetaKey])
		}
	}
	return values, servers
}

// checkListed: each listed URI leads to the server that lists it, by a URI that
// this one offers; and all that is offered is reached so, once, or reported.
func (w *uris) checkListed() {
	w.lists = map[string]listedURI{}
	reached := map[listedURI]string{}
	seen, servers := w.seen(registry.Resources, "uri")
	for i, uri := range seen {
		own, owners := w.view.Resource(uri)
		require.Equal(w.t, []string{servers[i]}, names(owners), "%q", uri)
		require.Contains(w.t, w.resources[servers[i]], own, "%q", uri)
		require.LessOrEqual(w.t, len(own), 8<<10)
		require.LessOrEqual(w.t, len(uri), 8<<10, "the router takes no longer one")
		require.True(w.t, strings.HasSuffix(uri, strings.TrimPrefix(own, "ui://")), "%q of %q", uri, own)
		require.Equal(w.t, strings.HasPrefix(own, "ui://"), strings.HasPrefix(uri, "ui://"), "%q of %q: hosts look for this scheme", uri, own)
		at := listedURI{servers[i], own}
		require.NotContains(w.t, reached, at, "two URIs for one resource")
		require.NotContains(w.t, w.lists, uri, "listed twice")
		reached[at], w.lists[uri] = uri, at
		if servers[i] == without {
			require.Equal(w.t, own, uri)
		}
	}
	for name, offered := range w.resources {
		for _, own := range offered {
			if _, ok := reached[listedURI{name, own}]; !ok {
				require.Positive(w.t, w.dropped[name], "%s lost %q in silence", name, own)
			}
		}
	}
}

// carried is what a URI says of a server by itself, written down anew.
var carried = []*regexp.Regexp{
	regexp.MustCompile(`(?s)^ui://([a-z][a-z0-9-]*)\.(.*)$`),
	regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)\+(.*)$`),
}

// named is the server that a URI names, if it has one, and the URI without it.
func (w *uris) named(uri string) (server, own string, ok bool) {
	for i, re := range carried {
		if m := re.FindStringSubmatch(uri); m != nil && m[1] != without && slices.Contains(w.order, m[1]) {
			return m[1], []string{"ui://", ""}[i] + m[2], true
		}
	}
	return "", "", false
}

// listers are the servers whose lists have a URI by the server's own name.
func (w *uris) listers(own string) []string {
	out := []string{}
	for _, name := range w.order {
		for _, l := range w.lists {
			if l == (listedURI{name, own}) {
				out = append(out, name)
			}
		}
	}
	return out
}

// checkAsked: a URI that anybody may ask for, listed or not, leads nowhere else.
func (w *uris) checkAsked(uri string) {
	got, owners := w.view.Resource(uri)
	to := names(owners)
	if l, ok := w.lists[uri]; ok {
		require.Equal(w.t, []string{l.server}, to, "%q", uri)
		require.Equal(w.t, l.own, got)
		return
	}
	if server, own, ok := w.named(uri); ok {
		require.Equal(w.t, []string{server}, to, "%q", uri)
		require.Equal(w.t, own, got)
		return
	}
	require.Equal(w.t, uri, got, "a bare URI changed")
	if listers := w.listers(uri); len(listers) > 0 {
		require.Equal(w.t, listers, to, "%q", uri)
		return
	}
	for _, name := range to {
		tmpl, ok := w.templates[name]
		require.True(w.t, ok, "%q went to %s, which has no template", uri, name)
		begin, rest, _ := strings.Cut(tmpl, "{")
		end := rest[strings.LastIndexByte(rest, '}')+1:]
		require.True(w.t, strings.HasPrefix(uri, begin) && strings.HasSuffix(uri, end), "%q went to %s, which has %q", uri, name, tmpl)
	}
}

// checkTemplates: a listed template leads to its server, and so does what a
// client makes of it, as what the server makes of its own; the latter also does
// without the server in front.
func (w *uris) checkTemplates(own, values string) {
	seen, servers := w.seen(registry.Templates, "uriTemplate")
	for i, listed := range seen {
		e, ok := w.view.Template(listed)
		require.True(w.t, ok, "%q", listed)
		require.Equal(w.t, servers[i], e.Server.Config.Name)
		require.Equal(w.t, own, e.Original)
		clients, ok1 := expand(listed, values)
		bare, ok2 := expand(own, values)
		require.Equal(w.t, ok1, ok2, "%q of %q", listed, own)
		if !ok1 {
			continue
		}
		if _, exact := w.lists[clients]; !exact && servers[i] != without {
			got, owners := w.view.Resource(clients)
			require.Equal(w.t, bare, got)
			require.Equal(w.t, []string{servers[i]}, names(owners), "%q", clients)
		}
		_, exact := w.lists[bare]
		_, _, elsewhere := w.named(bare)
		few := strings.Count(own, "{")+strings.Count(own, ",") <= 32
		if few && len(bare) <= 2<<10 && !exact && !elsewhere && len(w.listers(bare)) == 0 {
			_, owners := w.view.Resource(bare)
			require.Contains(w.t, names(owners), servers[i], "%q of %q", bare, own)
		}
	}
}

// expand fills a template's variables with the values, which | divides; it
// reports false for what is no template, or no value.
func expand(text, values string) (string, bool) {
	tmpl, err := uritemplate.New(text)
	if err != nil {
		return "", false
	}
	each := strings.Split(values, "|")
	vars := uritemplate.Values{}
	for i, name := range tmpl.Varnames() {
		vars.Set(name, uritemplate.String(each[i%len(each)]))
	}
	out, err := tmpl.Expand(vars)
	return out, err == nil
}
