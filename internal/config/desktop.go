package config

import (
	"regexp"
	"strconv"
	"strings"
)

// urlKeys are how desktop clients call the URL of a server; where an entry has
// several, the first of these counts ("url" beside "httpUrl" is an HTTP+SSE
// endpoint there).
var urlKeys = []string{"httpUrl", "serverUrl", "url"}

// decodeDesktop reads the `mcpServers` configuration of desktop clients into c,
// in the order of the file, and returns the path of each server. What such a
// file has besides is the client's own and only warned of.
func (p *problems) decodeDesktop(root *node, c *Config) (paths []string) {
	var servers *node
	for e := range p.uniqueEntries("", root) {
		p.places[clip(e.key)] = e.pos
		if e.key == "mcpServers" {
			servers = e.value
		} else {
			p.warnf(clip(e.key), "ignored, because this file is read for its mcpServers only")
		}
	}
	if servers.kind == kindNull || !p.expect("mcpServers", servers, kindMap) {
		return nil
	}
	for e := range p.uniqueEntries("mcpServers", servers) {
		path := join("mcpServers", clip(e.key))
		p.places[path] = e.pos
		if !p.expect(path, e.value, kindMap) {
			continue
		}
		if s, ok := p.desktopServer(path, e.value); ok {
			s.Name = p.desktopName(path, e.key)
			c.Servers = append(c.Servers, s)
			paths = append(paths, path)
		}
	}
	return paths
}

// desktopServer reads one entry; false means that it is left out.
func (p *problems) desktopServer(path string, n *node) (s Server, ok bool) {
	keys := map[string]*node{}
	for e := range p.uniqueEntries(path, n) {
		keys[e.key] = e.value
		p.places[join(path, clip(e.key))] = e.pos
	}
	if skip := p.skipDesktop(path, keys); skip {
		return s, false
	}
	s.URL = p.desktopURL(path, keys)
	s.Headers = p.desktopHeaders(join(path, "headers"), keys["headers"])
	delete(keys, "headers")
	for e := range p.uniqueEntries(path, n) {
		if _, left := keys[e.key]; left {
			p.warnf(join(path, clip(e.key)), "ignored: Patchbay has no use for this key")
		}
	}
	return s, true
}

// desktopURL returns the URL of an entry and takes its keys from the map.
func (p *problems) desktopURL(path string, keys map[string]*node) string {
	var found *node
	var place position
	for _, key := range urlKeys {
		v := keys[key]
		delete(keys, key)
		if v != nil && found != nil {
			p.warnf(join(path, key), "ignored, because the entry has another URL")
		} else if v != nil {
			found, place = v, p.places[join(path, key)]
		}
	}
	where := join(path, "url")
	delete(p.places, where) // checked only when it is a string
	if found == nil {
		p.errorf(path, `the key "url" is missing; expected the URL of the server, or "command"`)
		return ""
	}
	if !p.expect(where, found, kindString) {
		return ""
	}
	p.places[where] = place
	return found.text
}

// skipDesktop looks at the keys that may leave an entry out, and takes them from
// the map.
func (p *problems) skipDesktop(path string, keys map[string]*node) bool {
	disabled, kindKey := keys["disabled"], keys["type"]
	delete(keys, "disabled")
	delete(keys, "type")
	if disabled != nil && p.expect(join(path, "disabled"), disabled, kindBool) {
		if off, err := strconv.ParseBool(strings.ToLower(disabled.text)); err == nil && off {
			return true
		}
	}
	if keys["command"] != nil {
		p.warnf(path, "not supported yet: a server that is started by a command (stdio); it is left out")
		return true
	}
	if kindKey == nil || !p.expect(join(path, "type"), kindKey, kindString) {
		return false
	}
	switch normal := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(kindKey.text)); normal {
	case "http", "streamablehttp":
		return false
	case "sse", "stdio":
		p.warnf(join(path, "type"), "not supported yet: a server of the type %q; it is left out", normal)
		return true
	default:
		p.errorf(join(path, "type"), `expected "http", got %s`, show(kindKey.text))
		return false
	}
}

func (p *problems) desktopHeaders(path string, n *node) map[string]string {
	if n == nil || n.kind == kindNull || !p.expect(path, n, kindMap) {
		return nil
	}
	headers := make(map[string]string, len(n.entries))
	for e := range p.uniqueEntries(path, n) {
		at := join(path, clip(e.key))
		p.places[at] = e.value.pos
		if p.expect(at, e.value, kindString) {
			headers[e.key] = e.value.text
		}
	}
	return headers
}

var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

// desktopName makes a server name of the name that a client's user gave.
func (p *problems) desktopName(path, key string) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(key), "-"), "-")
	if name != "" && (name[0] < 'a' || name[0] > 'z') {
		name = "s-" + name
	}
	if len(name) > maxServerName {
		name = strings.TrimRight(name[:maxServerName], "-")
	}
	if name == "" {
		p.errorf(path, "expected a name with a letter or digit of a-z and 0-9")
	} else if name != key {
		p.warnf(path, "called %q here: names have only a-z, 0-9 and '-', and begin with a letter", name)
	}
	return name
}
