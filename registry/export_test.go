package registry

// BuildAll takes in the catalogs of all servers at once and merges once.
func BuildAll(r *Registry, catalogs []*Catalog) *Snapshot {
	order := make([]*entry, len(r.order))
	for i, e := range r.order {
		ready := *e
		ready.state, ready.catalog, ready.items = Ready, catalogs[i], render(&e.cfg, catalogs[i], nil)
		order[i] = &ready
	}
	return build(order, nil)
}

// MergeAll merges what is rendered already.
func MergeAll(r *Registry) *Snapshot { return build(r.order, nil) }
