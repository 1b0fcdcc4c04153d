package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"patchbay.dev/internal/jsonrpc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/registry"
)

// lists is a set of the lists that a server has.
type lists uint8

const (
	listTools lists = 1 << iota
	listPrompts
	listResources
	listTemplates
)

// listKinds says how each list is read: its method, the member of the result
// that holds the items, and the member of an item that names it (schema.ts,
// ListToolsResult and its like).
var listKinds = [...]struct {
	list                 lists
	method, member, name string
	of                   func(*registry.Catalog) *[]registry.Item
}{
	{listTools, mcp.MethodToolsList, "tools", "name", func(c *registry.Catalog) *[]registry.Item { return &c.Tools }},
	{listPrompts, mcp.MethodPromptsList, "prompts", "name", func(c *registry.Catalog) *[]registry.Item { return &c.Prompts }},
	{listResources, mcp.MethodResourcesList, "resources", "uri", func(c *registry.Catalog) *[]registry.Item { return &c.Resources }},
	{listTemplates, mcp.MethodTemplatesList, "resourceTemplates", "uriTemplate", func(c *registry.Catalog) *[]registry.Item { return &c.Templates }},
}

// changedBy returns the lists that a notification says have changed.
func changedBy(method string) lists {
	switch method {
	case mcp.NotificationTools:
		return listTools
	case mcp.NotificationPrompts:
		return listPrompts
	case mcp.NotificationResources:
		return listResources | listTemplates
	}
	return 0
}

// declared returns the lists that a server has according to its capabilities,
// and of which of them it does not promise to tell changes.
func declared(capabilities json.RawMessage) (has, silent lists) {
	type capability struct {
		ListChanged bool `json:"listChanged"`
	}
	var c struct {
		Tools, Prompts, Resources *capability
	}
	// What is not an object of objects declares nothing.
	_ = json.Unmarshal(capabilities, &c)
	for _, k := range []struct {
		c *capability
		l lists
	}{{c.Tools, listTools}, {c.Prompts, listPrompts}, {c.Resources, listResources | listTemplates}} {
		if k.c == nil {
			continue
		}
		has |= k.l
		if !k.c.ListChanged {
			silent |= k.l
		}
	}
	return has, silent
}

// fetch returns old with the lists in which read anew, all their pages. It does
// not change old.
func (c *Client) fetch(ctx context.Context, ref Ref, old *registry.Catalog, which lists) (*registry.Catalog, error) {
	fresh := *old
	for i := range listKinds {
		k := &listKinds[i]
		if which&k.list == 0 {
			continue
		}
		items, err := c.list(ctx, ref, k.method, k.member, k.name)
		if err != nil {
			return nil, err
		}
		*k.of(&fresh) = items
	}
	total := 0
	for i := range listKinds {
		for _, item := range *listKinds[i].of(&fresh) {
			total += len(item.Raw)
		}
	}
	if total > c.opt.Limits.Catalog {
		return nil, limitError("the server's tools, prompts and resources are larger than %d bytes together", c.opt.Limits.Catalog)
	}
	return &fresh, nil
}

// list reads all pages of one list. A server that declares a capability but does
// not know the method has an empty list.
func (c *Client) list(ctx context.Context, ref Ref, method, member, name string) ([]registry.Item, error) {
	var (
		all    []registry.Item
		cursor string
		size   int
		seen   = map[string]bool{}
		limits = c.opt.Limits
	)
	for page := 1; ; page++ {
		if page > limits.Pages {
			return nil, limitError("%s has more than %d pages", method, limits.Pages)
		}
		result, err := c.page(ctx, ref, method, cursor, page == 1)
		if rpc, ok := errors.AsType[*RPCError](err); ok && rpc.Code == mcp.CodeMethodNotFound && page == 1 {
			return nil, nil
		}
		if err != nil {
			return nil, asError(method, err)
		}
		items, next, err := parsePage(result, member, name)
		if err != nil {
			return nil, protocolError(err, "the server's answer to %s is not a list of %s", method, member)
		}
		if size += len(result); size > limits.Catalog {
			return nil, limitError("%s is larger than %d bytes", method, limits.Catalog)
		}
		if all = append(all, items...); len(all) > limits.Items {
			return nil, limitError("%s has more than %d items", method, limits.Items)
		}
		if next == "" {
			return all, nil
		}
		if seen[next] {
			return nil, protocolError(nil, "%s goes in circles: the server gave the same cursor twice", method)
		}
		seen[next], cursor = true, next
	}
}

func (c *Client) page(ctx context.Context, ref Ref, method, cursor string, first bool) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.RequestTimeout)
	defer cancel()
	if first {
		return c.Call(ctx, ref, method, nil)
	}
	return c.Call(ctx, ref, method, map[string]string{"cursor": cursor})
}

// asError makes an [*Error] of what a server said to one of our requests.
func asError(method string, err error) error {
	if _, ok := errors.AsType[*RPCError](err); ok {
		return protocolError(err, "the server answers %s with an error: look into its log", method)
	}
	return err
}

// parsePage returns the items of one page and the cursor of the next, empty at
// the end: servers of the session era that send an empty cursor mean the end.
// Items that are not objects are left out; one without a name has an empty Name.
func parsePage(result json.RawMessage, member, name string) (items []registry.Item, next string, err error) {
	var list json.RawMessage
	var wrong error
	err = jsonrpc.Fields(result, func(key string, _, value jsonrpc.Span) bool {
		switch key {
		case member:
			list = value.Of(result)
		case "nextCursor":
			wrong = json.Unmarshal(value.Of(result), &next) // null: stays empty
		}
		return wrong == nil
	})
	if err = errors.Join(err, wrong); err != nil {
		return nil, "", err
	}
	if list == nil {
		return nil, "", errors.New("the member is missing")
	}
	err = jsonrpc.Elements(list, func(value jsonrpc.Span) bool {
		raw := value.Of(list)
		if raw[0] == '{' {
			items = append(items, registry.Item{Name: nameIn(raw, name), Raw: raw})
		}
		return true
	})
	return items, next, err
}

// nameIn returns the string member of the object raw, empty when it has none.
func nameIn(raw []byte, member string) string {
	found := ""
	// raw is part of a text that was checked.
	_ = jsonrpc.Fields(raw, func(key string, _, value jsonrpc.Span) bool {
		if key != member {
			return true
		}
		if json.Unmarshal(value.Of(raw), &found) != nil {
			found = ""
		}
		return false
	})
	return found
}

// sameCatalog tells whether two catalogs are the same bytes.
func sameCatalog(a, b *registry.Catalog) bool {
	for i := range listKinds {
		if !slices.EqualFunc(*listKinds[i].of(a), *listKinds[i].of(b), func(x, y registry.Item) bool {
			return bytes.Equal(x.Raw, y.Raw)
		}) {
			return false
		}
	}
	return a.Instructions == b.Instructions && bytes.Equal(a.ServerInfo, b.ServerInfo) &&
		bytes.Equal(a.Capabilities, b.Capabilities)
}
