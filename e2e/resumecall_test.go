package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/mcptest"
)

// cable is a TCP proxy whose connections the test can cut.
type cable struct {
	url    string
	primed chan struct{} // gets one when a call's event id has reached the client

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{url: "http://" + l.Addr().String() + "/mcp", primed: make(chan struct{}, 64)}
	address := strings.TrimSuffix(strings.TrimPrefix(to, "http://"), "/mcp")
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, client, server)
			c.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			wg.Go(func() { c.down(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		wg.Wait()
	})
	return c
}

// down copies what goes to the client.
func (c *cable) down(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte("id: pb-call-")) {
				select {
				case c.primed <- struct{}{}:
				default:
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// halting is a server whose tool begins an event stream at once and answers when
// the test says so.
func halting(t *testing.T) (s *mcptest.Server, goOn chan struct{}) {
	s, goOn = mcptest.New(t, nil), make(chan struct{})
	s.Handle("tools/call", func(w http.ResponseWriter, r *mcptest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			mcptest.Event(w, `{"jsonrpc":"2.0","id":`+string(r.ID)+`,"result":{"content":[{"type":"text","text":"after the cut"}]}}`)
		case <-r.Context().Done():
		}
	})
	return s, goOn
}

// A client whose connection breaks in the middle of a call gets the answer by a
// GET, through Envoy.
func TestResumeCall(t *testing.T) {
	fake, goOn := halting(t)
	g := up(t, entry("s", fake))
	c := g.client()
	o := openCall(t, c, "s_echo", `{}`)
	e, err := o.events.Next()
	require.NoError(t, err)
	assert.Empty(t, e.Data)
	id := e.ID
	require.True(t, strings.HasPrefix(id, "pb-call-"), id)
	o.close()
	again := c.Stream(id)
	require.Equal(t, http.StatusOK, again.Status)
	goOn <- struct{}{}
	for ev := range again.Events { // ends with the answer
		assert.Contains(t, ev.Data, "after the cut")
		assert.NotEqual(t, id, ev.LastEventID)
		id = ev.LastEventID
	}
	assert.Len(t, fake.Method("tools/call"), 1)
	g.kill()
	g.start()
	lost := c.Stream(id)
	ev, ok := <-lost.Events
	require.True(t, ok)
	assert.Contains(t, ev.Data, `"id":"call","error":`, "a clear end also when everything was forgotten")
}

// The official clients come back by themselves.
func TestResumeCallOfOfficialClients(t *testing.T) {
	for _, client := range sdkClients {
		t.Run(client.name, func(t *testing.T) {
			fake, goOn := halting(t)
			g := up(t, entry("s", fake))
			wire := newCable(t, g.URL())
			done := make(chan []stepResult, 1)
			go func() {
				defer close(done) // also where a requirement in it fails
				done <- runSteps(t, client.env, client.argv, wire.url,
					step{"op": "connect"}, step{"op": "callTool", "name": "s_echo", "args": step{}})
			}()
			select {
			case <-wire.primed:
			case <-time.After(patience):
				t.Fatal("the call's stream has not begun")
			}
			wire.cut()
			goOn <- struct{}{}
			r := <-done
			require.Len(t, r, 2)
			require.Nil(t, r[1].Error, "%+v", r[1].Error)
			assert.Contains(t, string(r[1].Result), "after the cut")
			assert.Len(t, fake.Method("tools/call"), 1)
		})
	}
}
