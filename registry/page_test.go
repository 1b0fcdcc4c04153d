package registry_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/registry"
)

// page asks for one page and returns the names on it and the next position,
// which is nil behind the last page.
func page(t *testing.T, r *registry.Registry, k registry.Kind, position []byte, size int) (names []string, next []byte) {
	t.Helper()
	raw, err := r.Snapshot().Full().AppendPage([]byte("x"), k, position, size, func(p []byte) string {
		next = slices.Clone(p)
		return "cursor"
	})
	require.NoError(t, err)
	var result struct {
		Tools, Resources []struct{ Name, URI string }
		NextCursor       *string
	}
	require.NoError(t, json.Unmarshal(raw[1:], &result), "%s", raw)
	assert.Equal(t, next != nil, result.NextCursor != nil)
	for _, it := range append(result.Tools, result.Resources...) {
		names = append(names, it.Name+it.URI)
	}
	return names, next
}

func TestPages(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("b"))
	r.Add(server("a"))
	r.SetReady("b", tools("z", "y", "x"), registry.Facts{})
	r.SetReady("a", tools("c", "d"), registry.Facts{})
	one, next := page(t, r, registry.Tools, nil, 2)
	assert.Equal(t, []string{"a_c", "a_d"}, one)
	two, next := page(t, r, registry.Tools, next, 2)
	assert.Equal(t, []string{"b_x", "b_y"}, two)
	three, next := page(t, r, registry.Tools, next, 2)
	assert.Equal(t, []string{"b_z"}, three)
	assert.Nil(t, next)
	all, next := page(t, r, registry.Tools, nil, 5)
	assert.Len(t, all, 5)
	assert.Nil(t, next, "a page that ends with the list is the last")
	none, _ := page(t, r, registry.Prompts, nil, 5)
	assert.Empty(t, none)
}

// A client that pages through a list while servers and tools come and go sees
// every tool that stayed, exactly once.
func TestPagesOverChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		r, _ := newRegistry(t)
		r.Add(server("s"))
		r.Add(server("t"))
		stable := []string{"b", "d", "f", "h", "k"}
		change := func() {
			names := slices.Clone(stable)
			for _, n := range []string{"a", "c", "e", "g", "i", "j", "l"} {
				if rng.IntN(2) == 0 {
					names = append(names, n)
				}
			}
			rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			r.SetReady("s", tools(names...), registry.Facts{})
			r.SetReady("t", tools(names[:rng.IntN(len(names))]...), registry.Facts{})
		}
		seen := map[string]int{}
		var next []byte
		for first := true; first || next != nil; first = false {
			change()
			var names []string
			names, next = page(t, r, registry.Tools, next, 1+rng.IntN(3))
			for _, n := range names {
				seen[n]++
			}
		}
		for _, n := range stable {
			assert.Equal(t, 1, seen["s_"+n], "s_%s", n)
		}
		for n, times := range seen {
			assert.Equal(t, 1, times, n)
		}
	}
}

// URIs may be longer than a position, and begin alike.
func TestPagesOfLongURIs(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	long := "file:///" + strings.Repeat("x", 2000)
	with := func(ends ...string) {
		c := &registry.Catalog{}
		for _, end := range ends {
			c.Resources = append(c.Resources, registry.Item{Name: long + end, Raw: fmt.Appendf(nil, `{"uri":%q,"name":"n"}`, long+end)})
		}
		r.SetReady("s", c, registry.Facts{})
	}
	with("1", "2", "3", "4")
	one, next := page(t, r, registry.Resources, nil, 2)
	require.Len(t, one, 2)
	two, _ := page(t, r, registry.Resources, next, 2)
	require.Len(t, two, 2)
	assert.True(t, strings.HasSuffix(two[0], "3"))
	with("1", "3", "4") // the last one of the first page has gone
	two, _ = page(t, r, registry.Resources, next, 4)
	assert.Len(t, two, 3, "rather one again than one missed")
}

func TestPositionsRefused(t *testing.T) {
	r, _ := newRegistry(t)
	r.Add(server("s"))
	r.SetReady("s", tools("a"), registry.Facts{})
	for _, p := range [][]byte{{0}, {1, 'n', 'a'}, {0, 'x', 'a'}, {0, 'd', 'a'}, {9, 'n'}} {
		_, err := r.Snapshot().Full().AppendPage(nil, registry.Tools, p, 1, nil)
		assert.ErrorIs(t, err, registry.ErrPosition, "%q", p)
	}
}
