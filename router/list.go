package router

import (
	"encoding/json"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
)

// Seals seals and opens cursors; session.Keyring does.
type Seals interface {
	Seal(p session.Purpose, plain []byte) string
	AppendOpen(dst []byte, p session.Purpose, token string) ([]byte, error)
}

// list answers a list method: with the View's rendered bytes, or with a page.
// Cursors are good for as long as the keys, also at other replicas and when
// paging was turned off meanwhile.
func (rt *Router) list(r *Request, d *Decision, view *registry.View, k registry.Kind) *mcp.Error {
	cursor := r.Message.Cursor
	if rt.PageSize == 0 && !cursor.Present() {
		d.reply(r.ID(), view.List(k))
		return nil
	}
	var position []byte
	if cursor.Present() {
		var ok bool
		if position, ok = rt.position(cursor.Of(r.Body)); !ok {
			return errCursor()
		}
	}
	page, err := view.AppendPage(nil, k, position, rt.PageSize, func(position []byte) string {
		return rt.Seals.Seal(session.PurposeCursor, position)
	})
	if err != nil {
		return errCursor()
	}
	d.reply(r.ID(), page)
	return nil
}

// position opens a raw cursor.
func (rt *Router) position(raw []byte) (position []byte, ok bool) {
	var token string
	if rt.Seals == nil || json.Unmarshal(raw, &token) != nil {
		return nil, false
	}
	position, err := rt.Seals.AppendOpen(nil, session.PurposeCursor, token)
	return position, err == nil && len(position) > 0
}

// errCursor: 2025-11-25, Pagination, "Error Handling".
func errCursor() *mcp.Error {
	return errParams("invalid cursor: it is none that this gateway gave for this list; ask again without a cursor")
}
