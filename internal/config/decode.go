package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decode fills v from a node, strictly: a key that the type does not have, a
// value of another type, a key given twice or a missing required key is an
// error. What the file does not mention keeps the value that it has. Where each
// key was found goes to p.places.
func (p *problems) decode(path string, n *node, v reflect.Value) {
	if n.kind == kindNull { // "servers:" with nothing after it
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		p.decodeStruct(path, n, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		p.decode(path, n, v.Elem())
	case reflect.Slice:
		if p.expect(path, n, kindList) {
			v.Set(reflect.MakeSlice(v.Type(), len(n.list), len(n.list)))
			for i, item := range n.list {
				child := fmt.Sprintf("%s[%d]", path, i)
				p.places[child] = item.pos
				if item.kind == kindNull {
					p.errorf(child, "expected %s, got nothing", expected(v.Type().Elem()))
				}
				p.decode(child, item, v.Index(i))
			}
		}
	case reflect.Map:
		p.decodeMap(path, n, v)
	default:
		p.decodeScalar(path, n, v)
	}
}

func (p *problems) decodeStruct(path string, n *node, v reflect.Value) {
	if !p.expect(path, n, kindMap) {
		return
	}
	fields := structFields(v.Type())
	for e := range p.uniqueEntries(path, n) {
		child := join(path, e.key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key })
		if i < 0 {
			keys := keysOf(fields)
			p.errorAt(e.pos, join(path, clip(e.key)), "unknown key%s; expected one of %s", didYouMean(e.key, keys), strings.Join(keys, ", "))
			continue
		}
		p.places[child] = e.value.pos
		if e.value.pos.line == 0 { // a key with nothing after it
			p.places[child] = e.pos
		}
		before := len(p.errors)
		switch f := fields[i]; {
		case e.value.kind == kindNull && f.required:
			p.errorf(child, "expected %s, got nothing", expected(v.Field(f.index).Type()))
		case f.size:
			p.decodeSize(child, e.value, v.Field(f.index))
		default:
			p.decode(child, e.value, v.Field(f.index))
		}
		if len(p.errors) > before { // of the wrong type: its value is not checked too
			delete(p.places, child)
		}
	}
	for _, f := range fields {
		if f.required && n.get(f.key) == nil {
			p.errorAt(n.pos, path, "the key %q is missing; expected %s", f.key, expected(v.Field(f.index).Type()))
		}
	}
}

func (p *problems) decodeMap(path string, n *node, v reflect.Value) {
	if !p.expect(path, n, kindMap) {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for e := range p.uniqueEntries(path, n) {
		child := join(path, clip(e.key))
		p.places[child] = e.value.pos
		if e.value.kind == kindNull {
			p.errorAt(e.pos, child, "expected a string, got nothing")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		p.decode(child, e.value, value)
		v.SetMapIndex(reflect.ValueOf(e.key), value)
	}
}

// uniqueEntries yields the entries of a mapping and reports the keys that are
// there twice instead of yielding them again.
func (p *problems) uniqueEntries(path string, n *node) func(yield func(entry) bool) {
	return func(yield func(entry) bool) {
		seen := make(map[string]position, len(n.entries))
		for _, e := range n.entries {
			if first, twice := seen[e.key]; twice {
				p.errorAt(e.pos, join(path, clip(e.key)), "this key is already there, at line %d, column %d", first.line, first.column)
				continue
			}
			seen[e.key] = e.pos
			if !yield(e) {
				return
			}
		}
	}
}

func (p *problems) decodeScalar(path string, n *node, v reflect.Value) {
	if v.Type() == reflect.TypeFor[Duration]() {
		p.decodeDuration(path, n, v)
		return
	}
	if v.Kind() == reflect.Bool {
		if p.expect(path, n, kindBool) {
			v.SetBool(strings.EqualFold(n.text, "true")) // YAML has True and TRUE too
		}
		return
	}
	if v.Kind() == reflect.Int {
		p.decodeInt(path, n, v)
		return
	}
	if n.kind == kindNumber || n.kind == kindBool {
		p.errorf(path, "expected %s, got %s: put it in quotes", expected(v.Type()), n.kind)
		return
	}
	if p.expect(path, n, kindString) {
		v.SetString(n.text)
	}
}

func (p *problems) decodeInt(path string, n *node, v reflect.Value) {
	i, err := strconv.Atoi(n.text)
	switch {
	case n.kind != kindNumber:
		p.errorf(path, "expected a whole number, got %s", n.kind)
	case err != nil:
		p.errorf(path, "expected a whole number, got %s", show(n.text))
	default:
		v.SetInt(int64(i))
	}
}

func (p *problems) decodeDuration(path string, n *node, v reflect.Value) {
	d, err := time.ParseDuration(n.text)
	switch {
	case n.kind != kindString && (n.kind != kindNumber || n.text != "0"):
		p.errorf(path, "expected %s, got %s", expected(v.Type()), n.kind)
	case err != nil:
		p.errorf(path, "expected %s, got %s", expected(v.Type()), show(n.text))
	case d < 0:
		p.errorf(path, "expected %s that is not negative, got %s", expected(v.Type()), show(n.text))
	default:
		v.SetInt(int64(d))
	}
}

func (p *problems) decodeSize(path string, n *node, v reflect.Value) {
	size, err := parseSize(n.text)
	switch {
	case n.kind != kindString && n.kind != kindNumber:
		p.errorf(path, `expected a size in bytes, a number or such as "4MiB", got %s`, n.kind)
	case err != nil:
		p.errorf(path, `expected a size in bytes, a number or such as "4MiB", got %s`, show(n.text))
	default:
		v.SetInt(size)
	}
}

// parseSize reads "4096", "512KiB" or "4MiB".
func parseSize(s string) (int64, error) {
	unit := int64(1)
	for suffix, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(rest), factor
		}
	}
	n, err := strconv.ParseInt(s, 10, 40)
	if err != nil {
		return 0, fmt.Errorf("size: %w", err)
	}
	return n * unit, nil
}

// expect reports a node of another kind.
func (p *problems) expect(path string, n *node, want kind) bool {
	if n.kind != want {
		p.errorAt(n.pos, path, "expected %s, got %s", want, n.kind)
	}
	return n.kind == want
}

// expected says what a value of a type looks like in the file.
func expected(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return `a duration such as "30s" or "1h30m"`
	case t.Kind() == reflect.Bool:
		return kindBool.String()
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return kindList.String()
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return kindMap.String()
	default:
		return kindString.String()
	}
}

// field is one key of a struct.
type field struct {
	key      string
	index    int
	required bool // no omitempty
	size     bool // an integer that may be written as "4MiB"
}

func structFields(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		out = append(out, field{key, i, !strings.Contains(options, "omitempty"), f.Tag.Get("config") == "size"})
	}
	return out
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// clip shortens a key, and makes it printable, for a path in a message.
func clip(key string) string {
	s := show(key)
	return s[1 : len(s)-1]
}
