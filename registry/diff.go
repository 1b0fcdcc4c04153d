package registry

import "bytes"

// Kind is a kind of catalog item.
type Kind uint8

// The kinds, named as in MCP's list_changed notifications.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
)

// Change is how the list of one kind changed, by the names that clients see. A
// changed definition (description, schema, annotation, anything) counts.
type Change struct {
	Kind                    Kind
	Added, Removed, Changed []string
}

// Event is one change of the registry. Changes is empty when no list changed
// (only a state or an address did).
type Event struct {
	Before, After *Snapshot
	Changes       []Change
}

// diff compares what is listed in two snapshots.
func diff(before, after *Snapshot) []Change {
	var out []Change
	for kind, pair := range [...][2]*list{
		{&before.tools, &after.tools},
		{&before.prompts, &after.prompts},
		{&before.resources, &after.resources},
		{&before.templates, &after.templates},
	} {
		c := Change{Kind: Kind(kind)}
		c.compare(pair[0], pair[1])
		if len(c.Added)+len(c.Removed)+len(c.Changed) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func (c *Change) compare(before, after *list) {
	for _, e := range after.all {
		if !e.listed() {
			continue
		}
		old, ok := before.byName[e.Name]
		switch {
		case !ok || !old.listed():
			c.Added = append(c.Added, e.Name)
		case !bytes.Equal(old.Listed, e.Listed):
			c.Changed = append(c.Changed, e.Name)
		}
	}
	for _, e := range before.all {
		if !e.listed() {
			continue
		}
		if now, ok := after.byName[e.Name]; !ok || !now.listed() {
			c.Removed = append(c.Removed, e.Name)
		}
	}
}

func (e *Entry) listed() bool { return e.Server.State == Ready }
