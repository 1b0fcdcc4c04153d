package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// revision is the protocol revision that everybody here speaks.
const revision = "2025-11-25"

// fixture is the backend: an MCP server of the session era that answers in JSON
// and looks at no more of a request than it must. It does check the session,
// and it answers a call with the checksum of its arguments, so that the load
// generator sees that they arrived whole.
type fixture struct {
	notifies bool   // whether it offers a GET stream and tells changes on it
	greeting string // with which the stream begins

	mu        sync.RWMutex
	tools     int                   // guarded by mu
	list      []byte                // guarded by mu: the result of tools/list
	sessions  map[string]bool       // guarded by mu
	listeners map[net.Conn]struct{} // guarded by mu: GET streams
}

func newFixture(tools int) (*fixture, error) {
	f := &fixture{sessions: map[string]bool{}, listeners: map[net.Conn]struct{}{}}
	return f, f.offer(tools)
}

// offer makes the list of so many tools.
func (f *fixture) offer(tools int) error {
	list, err := json.Marshal(map[string]any{"tools": toolDefinitions(tools)})
	if err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tools, f.list = tools, list
	return nil
}

// toolDefinitions makes n tools of the size that real servers' tools have,
// about 800 bytes. The first one is called.
func toolDefinitions(n int) []map[string]any {
	property := func(typ, description string) map[string]any {
		return map[string]any{"type": typ, "description": description}
	}
	out := make([]map[string]any, n)
	for i := range out {
		name := fmt.Sprintf("search_records_%04d", i)
		if i < 2 {
			name = [...]string{toolName, eventsToolName}[i]
		}
		out[i] = map[string]any{
			"name":  name,
			"title": fmt.Sprintf("Search the records of collection %d", i),
			"description": fmt.Sprintf("Searches collection %d by words, by owner and by the time of the last change, and "+
				"returns the matching records, best first, with their ids and a short excerpt of each.", i),
			"inputSchema": map[string]any{
				"type": "object",
				"properties": map[string]any{
					"text":  property("string", "What to look for; words that stand in quotes are looked for as they are."),
					"owner": property("string", "Only records of this owner, by the owner's id or address."),
					"since": property("string", "Only records that were changed after this time (RFC 3339)."),
					"limit": property("integer", "How many records to return at most, from 1 to 100."),
				},
				"required": []string{"text"},
			},
			"annotations": map[string]any{"readOnlyHint": true, "openWorldHint": false},
		}
	}
	return out
}

// serve accepts connections until ctx is done.
func (f *fixture) serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fixture: %w", err)
		}
		go f.connection(ctx, conn)
	}
}

// connection answers one request after the other until the other side, or ctx,
// ends it.
func (f *fixture) connection(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := bufio.NewReaderSize(conn, maxLine)
	var m message
	var out []byte
	for m.read(r) == nil {
		if f.notifies && bytes.HasPrefix(m.start, []byte("GET ")) {
			f.listen(conn)
			return
		}
		out = f.answer(out[:0], &m)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// answer appends the whole HTTP response.
func (f *fixture) answer(dst []byte, m *message) []byte {
	switch {
	case bytes.HasPrefix(m.start, []byte("GET ")):
		return appendResponse(dst, "405 Method Not Allowed", "", nil, nil)
	case bytes.HasPrefix(m.start, []byte("DELETE ")):
		return appendResponse(dst, "200 OK", "", nil, nil)
	}
	method, id := peek(m.body)
	if method == "initialize" {
		session, changes := f.open(), ""
		if f.notifies {
			changes = `"listChanged":true`
		}
		return appendResponse(dst, "200 OK", "Mcp-Session-Id: "+session+"\r\n", id,
			[]byte(`{"protocolVersion":"`+revision+`","capabilities":{"tools":{`+changes+`}},"serverInfo":{"name":"fixture","version":"1"}}`))
	}
	f.mu.RLock()
	known, list := f.sessions[string(m.sessionID)], f.list
	f.mu.RUnlock()
	switch {
	case !known:
		return appendResponse(dst, "404 Not Found", "", nil, nil)
	case id == nil:
		return appendResponse(dst, "202 Accepted", "", nil, nil)
	case method == "tools/list":
		return appendResponse(dst, "200 OK", "", id, list)
	case method == "tools/call" && bytes.Contains(m.body[:min(len(m.body), 256)], []byte(`"name":"`+eventsToolName+`"`)):
		return appendEvent(dst, id, callResult(m.body))
	case method == "tools/call":
		return appendResponse(dst, "200 OK", "", id, callResult(m.body))
	}
	return appendResponse(dst, "200 OK", "", id, []byte("{}"))
}

func (f *fixture) open() string {
	id := strings.ToLower(rand.Text()[:26] + rand.Text()[:10]) // as long as a UUID
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[id] = true
	return id
}

// peek finds method and id where all clients here write them: in front.
func peek(body []byte) (method string, id []byte) {
	head := body[:min(len(body), 256)]
	if _, rest, ok := bytes.Cut(head, []byte(`"method":"`)); ok {
		name, _, _ := bytes.Cut(rest, []byte(`"`))
		method = string(name)
	}
	if _, rest, ok := bytes.Cut(head, []byte(`"id":`)); ok {
		id = rest[:max(0, bytes.IndexAny(rest, ",}"))]
	}
	return method, id
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the checksum of the arguments: of all that follows the key.
func checksum(body []byte) uint32 {
	_, arguments, _ := bytes.Cut(body, []byte(`"arguments":`))
	return crc32.Checksum(arguments, castagnoli)
}

func callResult(body []byte) []byte {
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":"%08x"}]}`, checksum(body))
}

// appendEvent appends a response that is a stream with the answer as its only
// event.
func appendEvent(dst, id, result []byte) []byte {
	event := fmt.Appendf(nil, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", id, result)
	return fmt.Appendf(dst, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"%x\r\n%s\r\n0\r\n\r\n", len(event), event)
}

// appendResponse appends a response; without an id it has no body.
func appendResponse(dst []byte, status, header string, id, result []byte) []byte {
	const open, middle, end = `{"jsonrpc":"2.0","id":`, `,"result":`, `}`
	length := 0
	if id != nil {
		length = len(open) + len(id) + len(middle) + len(result) + len(end)
	}
	dst = append(dst, "HTTP/1.1 "+status+"\r\n"+header...)
	if id != nil {
		dst = append(dst, "Content-Type: application/json\r\n"...)
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(length), 10)
	dst = append(dst, "\r\n\r\n"...)
	if id == nil {
		return dst
	}
	dst = append(dst, open...)
	dst = append(dst, id...)
	dst = append(dst, middle...)
	dst = append(dst, result...)
	return append(dst, end...)
}

// runFixture is the fixture's process: it prints its address and ends with in.
// Each line of in adds a tool and is answered with a line.
func runFixture(ctx context.Context, tools int, notifies bool, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := newFixture(tools)
	if err != nil {
		return err
	}
	f.notifies = notifies
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("fixture: %w", err)
	}
	fmt.Fprintln(out, l.Addr())
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			if f.change() != nil {
				return
			}
			fmt.Fprintln(out, "changed")
		}
	}()
	return f.serve(ctx, l)
}
