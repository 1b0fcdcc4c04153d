package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/registry"
)

// Error says why a server could not be used.
type Error struct {
	// Reason is the word for it in statuses and metrics.
	Reason registry.Reason
	// Delivered is false only when nothing of the request can have been
	// processed by the server, so that repeating it is safe.
	Delivered bool
	// Status is the HTTP status that the server answered with, 0 when it gave
	// no answer.
	Status int
	// Message is fit for operators and clients: it says what to do and holds
	// no secret.
	Message string

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.cause }

// RPCError is a JSON-RPC error that the server answered: what the backend said,
// not what failed on the way.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("the server says: %s (%d)", e.Message, e.Code) }

var (
	// ErrNoStream says that a server offers no GET stream.
	ErrNoStream = errors.New("upstream: the server offers no GET stream")
	// ErrLost is in the chain of an [*Error] when the server does not know
	// the session any more: open a new one.
	ErrLost = errors.New("upstream: the server does not know the session")
)

// Lost tells whether an answer with this HTTP status and body to a request with
// a session id means that the server does not know the session: 404 as the
// specification has it (Transports, "Session Management"), or 400 with a body
// that says so, as servers made with the TypeScript SDK answer. body may be cut
// off after some KiB.
func Lost(status int, body []byte) bool {
	code, message := rpcErrorIn(body)
	switch status {
	case http.StatusNotFound:
		// Some answer an unknown method with 404: the session lives.
		return code != mcp.CodeMethodNotFound
	case http.StatusBadRequest:
		if message == "" {
			message = string(body)
		}
		message = strings.ToLower(message)
		return strings.Contains(message, "session") || strings.Contains(message, "not initialized")
	}
	return false
}

// rpcErrorIn returns the JSON-RPC error in body, zero values when there is none.
// It is lenient: such bodies often have "id": null.
func rpcErrorIn(body []byte) (code int, message string) {
	var m struct {
		Error RPCError `json:"error"`
	}
	if json.Unmarshal(body, &m) != nil {
		return 0, ""
	}
	return m.Error.Code, m.Error.Message
}

// networkError makes an Error of a failure to send a request or to read its
// answer.
func networkError(err error, delivered bool) *Error {
	return &Error{
		Reason: registry.ReasonUnreachable, Delivered: delivered,
		Message: describe(err), cause: err,
	}
}

// protocolError makes an Error of an answer that is not MCP.
func protocolError(cause error, format string, args ...any) *Error {
	return &Error{
		Reason: registry.ReasonProtocolError, Delivered: true,
		Message: fmt.Sprintf(format, args...), cause: cause,
	}
}

// limitError makes an Error of an answer that is too large.
func limitError(format string, args ...any) *Error {
	return &Error{
		Reason: registry.ReasonLimitExceeded, Delivered: true,
		Message: fmt.Sprintf(format, args...),
	}
}

// describe says what went wrong on the network and what to do about it, without
// addresses: the reader knows the server by its name.
func describe(err error) string {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		auth x509.UnknownAuthorityError
		host x509.HostnameError
		rec  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &dns):
		return "the host name of the server cannot be resolved: check its url"
	case errors.As(err, &auth):
		return "the server's certificate is signed by an authority that is not trusted: set tls.caFile"
	case errors.As(err, &host):
		return "the server's certificate is for another host name: check its url or set tls.serverName"
	case errors.As(err, &cert):
		return "the server's certificate is not valid: check its dates and its chain"
	case errors.As(err, &rec):
		return "the server does not speak TLS on this port: check whether its url must be http"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: check that the server runs and that its url is right"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "the server did not answer in time"
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the server closed the connection before it had answered"
	}
	return "the connection to the server failed: check that it runs and that its url is right"
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// statusError makes an Error of an answer with an HTTP status that is not 2xx.
// sessioned tells whether the request carried a session id.
func statusError(status int, body []byte, sessioned bool) *Error {
	e := &Error{Reason: registry.ReasonProtocolError, Delivered: true, Status: status}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Reason = registry.ReasonCredentialInvalid
		e.Message = fmt.Sprintf("the server refuses the credential (HTTP %d): check the headers configured for it", status)
	case sessioned && Lost(status, body):
		e.cause = ErrLost
		e.Message = "the server does not know the session any more"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		e.Reason = registry.ReasonUnreachable
		e.Message = fmt.Sprintf("the server answers with HTTP %d: look into its log", status)
	default:
		e.Message = fmt.Sprintf("the server answers with HTTP %d: check that its url is that of an MCP endpoint (streamable HTTP)", status)
	}
	return e
}
