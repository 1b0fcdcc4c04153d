package broker

import (
	"net/http"
	"time"
)

// response is the answer to one client. It knows whether it has begun, and it
// gives up on a client that does not read. It belongs to the request's goroutine.
type response struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // of one write
	begun   bool          // the status is on its way
	status  int           // what it is
	written int           // bytes of the body
	slow    bool          // a push failed because the client did not read
}

func (b *Broker) response(w http.ResponseWriter) *response {
	return &response{ResponseWriter: w, rc: http.NewResponseController(w), timeout: b.WriteTimeout}
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.begun, w.status = true, status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. The time limit stays set: it also bounds what
// net/http itself writes after the handler.
func (w *response) Write(p []byte) (int, error) {
	w.begun = true
	w.limit()
	n, err := w.ResponseWriter.Write(p)
	w.written += n
	return n, err //nolint:wrapcheck // only whether it failed matters
}

func (w *response) limit() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) // fails on a dead connection, as the write will
}

// push writes a part of a stream. The time limit ends with it: in HTTP/2 one
// that runs out resets the stream also when nothing is being written, and in
// HTTP/1 the proper end of a stream could not be written any more.
func (w *response) push(p []byte) error {
	start := time.Now()
	_, err := w.Write(p)
	if err == nil {
		err = w.rc.Flush()
	}
	if err != nil {
		// What kind of error it is depends on the protocol, and the request's
		// context ends in either case; so the clock tells.
		w.slow = time.Since(start) >= w.timeout
		return err //nolint:wrapcheck // only whether it failed matters
	}
	_ = w.rc.SetWriteDeadline(time.Time{}) // as in limit
	return nil
}
