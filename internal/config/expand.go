package config

import (
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces "${NAME}" from the environment and "$${" by "${". What comes
// from the environment is not expanded again. The values never reach a message:
// they are what the file keeps out of itself.
func (p *problems) expand(path, s string, env Env) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String()
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(escaped + "${")
			s = rest
			continue
		}
		b.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		switch value, set := "", false; {
		case !closed:
			p.errorf(path, `expected "${NAME}", the closing brace is missing; "$${" stands for "${" itself`)
			return ""
		case !variableName.MatchString(name):
			p.errorf(path, `expected "${NAME}" with the name of an environment variable, without a default or other syntax; "$${" stands for "${" itself`)
		default:
			if value, set = env(name); !set {
				p.errorf(path, "the environment variable %s is not set", name)
			}
			b.WriteString(value)
		}
		s = after
	}
}
