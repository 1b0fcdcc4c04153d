package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/config"
	"patchbay.dev/internal/session"
	"patchbay.dev/registry"
	"patchbay.dev/router"
)

// decider returns a router with one server of 40 tools and a session that has
// its backend session.
func decider(t testing.TB) (*router.Router, string) {
	t.Helper()
	catalog := &registry.Catalog{}
	for _, def := range toolDefinitions(40) {
		raw, err := json.Marshal(def)
		require.NoError(t, err)
		name, ok := def["name"].(string)
		require.True(t, ok)
		catalog.Tools = append(catalog.Tools, registry.Item{Name: name, Raw: raw})
	}
	reg := registry.New(slog.New(slog.DiscardHandler))
	reg.Add(config.Server{Name: serverName, URL: "http://127.0.0.1:9/mcp", Way: config.WayAuto})
	reg.SetReady(serverName, catalog, registry.Facts{Revision: revision, LostStatus: 404})
	reg.SetRoutable(func(string) bool { return true })
	table := session.NewTable(session.Options{})
	t.Cleanup(table.Close)
	_, token := table.New(session.Claims{})
	s, err := table.Find(token, "")
	require.NoError(t, err)
	cluster := reg.Snapshot().Servers()[0].Cluster
	_, err = s.OpenBackend(context.Background(), serverName, cluster, nil, func(context.Context) (*session.Backend, error) {
		return &session.Backend{ID: "b", Epoch: cluster, Revision: revision}, nil
	})
	require.NoError(t, err)
	return &router.Router{Sessions: table, Catalog: reg, BodyLimit: bodyLimit}, token
}

func BenchmarkDecide(b *testing.B) {
	rt, token := decider(b)
	for _, bc := range []struct {
		name string
		c    benchCase
		way  router.Way
	}{
		{"call", callCase(64), router.Direct},
		{"call64KiB", callCase(64 << 10), router.Direct},
		{"list", listCase(40, 0), router.Reply},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := router.Request{Body: bc.c.body, SessionID: token, Version: revision, UserAgent: userAgent}
				if d := rt.Decide(&r); d.Way != bc.way || d.Err != nil {
					b.Fatal(d.Way, d.Err)
				}
			}
		})
	}
}
