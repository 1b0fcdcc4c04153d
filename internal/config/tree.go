package config

import "fmt"

// Limits on a configuration file.
const (
	maxFileBytes = 1 << 20
	maxDepth     = 64
	maxNodes     = 100_000
)

// kind is what a value in the file is.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindMap
)

// String names the kind as an error message does.
func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a string", "a list", "a mapping"}[k]
}

// position is a place in the file; both count from 1.
type position struct{ line, column int }

// node is one value of the file, the same for YAML and JSON. It is immutable
// once the tree is built; YAML aliases make several parents share a node.
type node struct {
	kind kind
	pos  position
	// text is the value of a string, or a bool or number as it was written.
	text    string
	list    []*node
	entries []entry
}

// entry is one key of a mapping with its value, in the order of the file.
type entry struct {
	key   string
	pos   position
	value *node
}

// get returns the value of a key, or nil. Of a key that is there twice, which
// is reported elsewhere, it returns the first.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// syntaxError is a file that has no tree: nothing else can be said about it.
type syntaxError struct {
	pos position
	msg string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.pos.line, e.pos.column, e.msg)
}
