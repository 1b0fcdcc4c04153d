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

// maxMatchedURI is the longest URI, in bytes, that templates are tried on.
const maxMatchedURI = 2 << 10

// maxTemplateVars is how many variables a template may have to be matched: the
// time of a match grows with it, and a backend chooses the template.
const maxTemplateVars = 32

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

func (t *template) mayMatch(uri string) bool {
	return len(uri) <= maxMatchedURI && strings.HasPrefix(uri, t.literal)
}

// matches tells whether uri is an expansion of the template. The literal is
// looked at first: compiling takes 20 us and more, and a catalog may have
// thousands of templates. The limit is there because a client chooses the URI.
func (t *template) matches(uri string) bool {
	if !t.mayMatch(uri) {
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
	if strings.Count(text, "{")+strings.Count(text, ",") > maxTemplateVars {
		return nil, fmt.Errorf("the template has over %d variables", maxTemplateVars)
	}
	t, err := uritemplate.New(text)
	if err != nil {
		return nil, fmt.Errorf("not a URI template: %w", err)
	}
	return t.Regexp(), nil
}
