package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A notification may come in any parts, and among others.
func TestStreamCount(t *testing.T) {
	one := `id: 1` + "\n" + `data: {"method":"` + listChanged + `"}` + "\n\n: keep-alive\n\n"
	text := strings.Repeat(one+`data: {"method":"notifications/prompts/list_changed"}`+"\n\n", 5)
	for _, size := range []int{1, 7, 100, len(text)} {
		var s streamConn
		n := 0
		for rest := []byte(text); len(rest) > 0; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			n += s.count(bytes.Clone(part))
		}
		assert.Equal(t, 5, n, "in parts of %d bytes", size)
	}
}

// TestAudience listens at a fixture that lets clients without a session listen
// too, and sends events in the gateway's form.
func TestAudience(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, err := newFixture(1)
	require.NoError(t, err)
	f.notifies, f.greeting = true, ": connected\n\n"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	a := newAudience()
	require.NoError(t, a.open(ctx, l.Addr().String(), 40))
	t.Cleanup(a.close)
	for i := range 3 {
		require.NoError(t, f.change())
		require.NoError(t, a.await(ctx, i+1))
	}
	assert.Equal(t, 3, a.most())

	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	require.ErrorIs(t, a.await(short, 4), errAnswer, "there is no fourth change")

	require.NoError(t, a.streams[7].conn.Close())
	require.ErrorIs(t, a.await(ctx, 4), net.ErrClosed, "a stream has ended")
}

// The fixture's process adds a tool for each line.
func TestFixtureChanges(t *testing.T) {
	in, tell := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- runFixture(t.Context(), 1, true, in, out) }()
	line := func() string {
		b := make([]byte, 100)
		n, err := answers.Read(b)
		require.NoError(t, err)
		return strings.TrimSpace(string(b[:n]))
	}
	c := connect(t, line())
	require.NoError(t, c.open())
	for tools := 2; tools < 4; tools++ {
		_, err := tell.Write([]byte("change\n"))
		require.NoError(t, err)
		require.Equal(t, "changed", line())
		list := listCase(tools, 0)
		_, err = c.learn(&list, false)
		require.NoError(t, err)
	}
	require.NoError(t, tell.Close())
	require.NoError(t, <-done)
}

func TestStreamReport(t *testing.T) {
	r := &streamReport{machine: "2 cores", date: "today", streams: 1000, changes: 2, throughEnvoy: &streamFigures{
		before: memory{resident: 30e6, heap: 5e6, stacks: 1e6},
		idle:   memory{resident: 54e6, heap: 15e6, stacks: 9e6},
		after:  memory{resident: 56e6},
		heard:  []time.Duration{1500 * time.Millisecond, 2100 * time.Millisecond},
		opened: time.Second,
	}}
	r.direct = r.throughEnvoy
	var b strings.Builder
	r.write(&b)
	for _, want := range []string{
		"| patchbay, resident, per stream with its session | 24 | KB | 25 | pass |",
		"| the same after the changes | 26 | KB | 25 | FAIL |",
		"| the same after the changes | 26 | KB | | |", // at the broker's own port
		"| of it heap, garbage included | 10 | KB | | |",
		"| a change until all have read it, slowest | 2.10 | s | 2 | FAIL |",
		"| each | 1.50, 2.10 | s | | |",
	} {
		assert.Contains(t, strings.Join(strings.Fields(b.String()), " "), want)
	}
	b.Reset()
	r.throughEnvoy = nil
	r.write(&b)
	assert.NotContains(t, b.String(), "Envoy, resident")
}

func TestStreamOptions(t *testing.T) {
	for _, args := range []string{"-streams 0", "-streams 20001", "-changes 0", "more"} {
		_, err := parseStreamOptions(strings.Fields(args))
		assert.Error(t, err, args)
	}
}
