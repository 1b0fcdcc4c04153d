package main

import (
	"fmt"
	"io"
	"net"
)

// listChanged is the method of the notification that the list of tools changed
// (MCP 2025-11-25, Tools, "List Changed Notification").
const listChanged = "notifications/tools/list_changed"

// listen makes a connection a GET stream and returns when the other side ends it
// (2025-11-25, Transports, "Listening for Messages from the Server"). The stream
// ends with its connection, so it needs no chunks.
func (f *fixture) listen(conn net.Conn) {
	f.mu.Lock()
	_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+f.greeting)
	if err == nil {
		f.listeners[conn] = struct{}{}
	}
	f.mu.Unlock()
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, conn)
}

// change adds a tool and tells every GET stream.
func (f *fixture) change() error {
	f.mu.RLock()
	tools := f.tools
	f.mu.RUnlock()
	if err := f.offer(tools + 1); err != nil {
		return err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for conn := range f.listeners {
		// A dead one is taken out by its reader.
		_, _ = fmt.Fprintf(conn, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":%q}\n\n", listChanged)
	}
	return nil
}
