package registry

import "github.com/yosida95/uritemplate/v3"

// matchTemplate tells whether uri is an expansion of the RFC 6570 template. A
// template that does not parse matches nothing. It compiles the template each
// time: only bare URIs that no list names come here, and they are rare.
func matchTemplate(template, uri string) bool {
	t, err := uritemplate.New(template)
	if err != nil {
		return false
	}
	return t.Regexp().MatchString(uri)
}
