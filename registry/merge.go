package registry

import "fmt"

// merger puts the servers' items under their final names, in order.
type merger struct{ snap *Snapshot }

func (m *merger) add(srv *Server, it *rendered) {
	m.named(srv, &m.snap.tools, it.tools, "tool")
	m.named(srv, &m.snap.prompts, it.prompts, "prompt")
	m.plain(srv, &m.snap.resources, it.resources)
	m.plain(srv, &m.snap.templates, it.templates)
}

// named merges tools or prompts: the first to have a name keeps it, the later
// one is listed as <server>_<its own name>.
func (m *merger) named(srv *Server, l *list, items []item, what string) {
	for i := range items {
		it := &items[i]
		name, listed := it.final, it.listed
		if first, taken := l.byName[name]; taken {
			srv.Reason = orReason(srv.Reason, ReasonToolNameConflict)
			alt := srv.Config.Name + "_" + it.original
			p := Problem{
				Server: srv.Config.Name, Item: it.original, Reason: ReasonToolNameConflict,
				Message: fmt.Sprintf("the %s name %q is taken by server %q; listed as %q (set another prefix to choose the name yourself)",
					what, name, first.Server.Config.Name, alt),
			}
			_, taken := l.byName[alt]
			if msg := checkName(alt); taken || msg != "" {
				p.Dropped = true
				p.Message = fmt.Sprintf("the %s name %q is taken by server %q, and %q cannot be used either; set another prefix",
					what, name, first.Server.Config.Name, alt)
			}
			srv.Problems = append(srv.Problems, p)
			srv.Message = orText(srv.Message, p.Message)
			if p.Dropped {
				continue
			}
			name, listed = alt, it.renamed(alt)
		}
		m.put(srv, l, it, name, listed)
	}
}

// plain merges resources or templates. Their URIs carry the server; servers
// without a prefix can collide, and then the first keeps the URI.
func (m *merger) plain(srv *Server, l *list, items []item) {
	for i := range items {
		it := &items[i]
		if first, taken := l.byName[it.final]; taken {
			srv.Problems = append(srv.Problems, Problem{
				Server: srv.Config.Name, Item: it.original, Reason: ReasonToolNameConflict, Dropped: true,
				Message: fmt.Sprintf("the URI %q is taken by server %q; give one of them a prefix", it.final, first.Server.Config.Name),
			})
			continue
		}
		m.put(srv, l, it, it.final, it.listed)
	}
}

func (m *merger) put(srv *Server, l *list, it *item, name string, listed []byte) {
	e := &Entry{Server: srv, Name: name, Original: it.original, Definition: it.raw, Listed: listed, template: it.template}
	if l.byName == nil {
		l.byName = map[string]*Entry{}
	}
	l.byName[name] = e
	l.all = append(l.all, e)
	if l == &m.snap.tools && srv.State == Ready {
		srv.Listed++
	}
}

func orReason(have, more Reason) Reason {
	if have != ReasonNone {
		return have
	}
	return more
}

func orText(have, more string) string {
	if have != "" {
		return have
	}
	return more
}
