package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startFixture runs a fixture until the test ends.
func startFixture(t *testing.T, tools int) (addr string) {
	t.Helper()
	f, err := newFixture(tools)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return l.Addr().String()
}

func connect(t *testing.T, addr string) *client {
	t.Helper()
	c, err := dial(context.Background(), addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

func TestLoadOnFixture(t *testing.T) {
	addr := startFixture(t, 40)
	for _, k := range []benchCase{callCase(64), callCase(64 << 10), listCase(40, 0)} {
		t.Run(k.title, func(t *testing.T) {
			clients := []*client{connect(t, addr), connect(t, addr)}
			for _, c := range clients {
				require.NoError(t, c.open())
			}
			require.NotEqual(t, clients[0].sessionID, clients[1].sessionID)
			want, err := clients[0].learn(&k, false)
			require.NoError(t, err)
			l, err := generate(clients, &k, &want, false, 50*time.Millisecond)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, l.requests, 2)
			assert.LessOrEqual(t, l.p50, l.p99)
		})
	}
}

// What is wrong with an answer ends the measurement.
func TestLoadNotices(t *testing.T) {
	addr := startFixture(t, 1)
	k := callCase(64)
	c := connect(t, addr)
	require.NoError(t, c.open())
	want, err := c.learn(&k, false)
	require.NoError(t, err)
	run := func(want expected, fixedID bool) error {
		return c.run(&k, &want, fixedID, time.Now().Add(time.Minute)).err
	}

	t.Run("another content", func(t *testing.T) {
		other := expected{want.before, append(bytes.Clone(want.after[:len(want.after)-1]), '!')}
		require.ErrorIs(t, run(other, false), errAnswer)
	})
	t.Run("another id", func(t *testing.T) {
		require.ErrorIs(t, run(want, true), errAnswer)
	})
	t.Run("another tool count", func(t *testing.T) {
		list := listCase(2, 0)
		_, err := c.learn(&list, false)
		require.ErrorIs(t, err, errAnswer)
	})
	t.Run("altered arguments", func(t *testing.T) {
		altered := k
		altered.body = bytes.Replace(k.body, []byte(`"text":"`), []byte(`"text":"!`), 1)
		require.NoError(t, c.post(altered.body, "200"))
		_, err := k.learn(c.response.body, placeholder)
		require.ErrorIs(t, err, errAnswer)
	})
	t.Run("another status", func(t *testing.T) {
		c.use("nobody's session")
		require.ErrorIs(t, run(want, false), errAnswer)
	})
}

func TestCases(t *testing.T) {
	for _, n := range []int{64, 1000, 64 << 10} {
		assert.InDelta(t, n, len(argumentsOf(n)), 2, "of %d", n)
	}
	defs := toolDefinitions(1000)
	names := map[any]bool{}
	for _, d := range defs {
		names[d["name"]] = true
	}
	assert.Len(t, names, 1000)
	assert.True(t, names[toolName])
}

func TestPeek(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`: {"tools/call", "7"},
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`:                 {"ping", `"a"`},
		`{"jsonrpc":"2.0","method":"ping","id":12}`:                  {"ping", "12"},
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:     {"notifications/initialized", ""},
		`{"id":`: {"", ""},
		``:       {"", ""},
	} {
		method, id := peek([]byte(body))
		assert.Equal(t, want, [2]string{method, string(id)}, body)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range []string{"-rounds 0", "-rounds 101", "-time 0s", "-time 2m", "more", "-only ("} {
		_, err := parseOptions(strings.Fields(args))
		assert.Error(t, err, args)
	}
}
