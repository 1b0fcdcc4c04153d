package registry

import "patchbay.dev/internal/config"

// Registry is the skeleton; the methods below are its contract with the watchers.
type Registry struct{}

// Add adds or replaces (same name) a server at the end of the order or in its place.
func (r *Registry) Add(s config.Server) {}

// Remove removes a server and everything of it.
func (r *Registry) Remove(name string) {}

// SetReady says that a server is connected and what it offers.
func (r *Registry) SetReady(name string, c *Catalog, f Facts) {}

// SetUnavailable says that a server cannot be used and why. Its last catalog is kept.
func (r *Registry) SetUnavailable(name string, reason Reason, message string) {}
