package registry

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"
)

// template is a resource template (RFC 6570) as the resolution of bare URIs
// needs it. It is immutable.
type template struct {
	literal  string                // what every expansion begins with
	compiled func() *regexp.Regexp // when first needed; nil matches nothing
}

func newTemplate(text string) *template {
	literal, _, _ := strings.Cut(text, "{")
	return &template{literal, sync.OnceValue(func() *regexp.Regexp {
		re, err := compileTemplate(text)
		if err != nil {
			return nil
		}
		return re
	})}
}

// matches tells whether uri is an expansion of the template. The literal is
// looked at first: compiling takes 20 us and more, and a catalog may have
// thousands of templates. The limit is there because a client chooses the URI.
func (t *template) matches(uri string) bool {
	if len(uri) > maxURILength || !strings.HasPrefix(uri, t.literal) {
		return false
	}
	re := t.compiled()
	return re != nil && re.MatchString(uri)
}

// compileTemplate fails for what is no template, and for one that package regexp
// cannot compile (an expression of over 1000 variables): the library panics then.
func compileTemplate(text string) (re *regexp.Regexp, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("template not compiled: %v", p)
		}
	}()
	t, err := uritemplate.New(text)
	if err != nil {
		return nil, fmt.Errorf("not a URI template: %w", err)
	}
	return t.Regexp(), nil
}
