// Package calls takes in what came of calls to servers, whichever way they went,
// and makes metrics and, if wanted, an access log of it. The broker reports its
// own calls; direct ones are reported by Envoy's access log service, because
// their answers never pass this process.
//
// Concurrency: a Recorder may be used by many goroutines at once.
package calls

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome says in one word how a call ended. It is a metric label.
type Outcome string

// The outcomes of direct calls. The broker has more: the mcp.Reasons.
const (
	OK          Outcome = "ok"               // answered, with a result or a JSON-RPC error
	HTTPError   Outcome = "http_error"       // answered with a status of 400 or more
	Broken      Outcome = "backend_broken"   // the answer broke off
	Timeout     Outcome = "timeout"          // the call's time limit
	Unavailable Outcome = "unavailable"      // no connection, no cluster, too many requests
	ClientGone  Outcome = "client_gone"      // the client went away first
	Recovered   Outcome = "went_to_recovery" // retried at the broker, which reports it
)

// Ended is a call that came to its end.
type Ended struct {
	// Server is the server's name, Tool the tool's own name at it; empty for
	// calls that are not tools/call.
	Server, Tool string
	// ID is the raw JSON-RPC id, Way "direct", "broker" or "recovered".
	ID, Way string
	Outcome Outcome
	// Status is the HTTP status that the client got.
	Status int
	// Start is when the request arrived, Duration the time to the answer's end.
	Start    time.Time
	Duration time.Duration
	// RequestBytes and ResponseBytes are of the bodies.
	RequestBytes, ResponseBytes uint64

	// Recover is the sealed recovery context of a direct call, and EventStream
	// tells that its answer had begun as an event stream.
	Recover     string
	EventStream bool
}

// MaxTools is how many pairs of server and tool have metrics of their own; the
// rest share the server and tool "OTHER".
const MaxTools = 500

// other is the label of what has none of its own. No server is called so: their
// names are in lower case.
const other = "OTHER"

// Recorder keeps the figures.
type Recorder struct {
	seconds *prometheus.HistogramVec
	log     *slog.Logger

	mu    sync.RWMutex
	known map[[2]string]prometheus.Observer // guarded by mu; only the outcome OK
	tools map[[2]string]bool                // guarded by mu; pairs with a label
}

// NewRecorder registers the metrics with reg. A nil log writes no access log.
func NewRecorder(reg prometheus.Registerer, log *slog.Logger) *Recorder {
	r := &Recorder{
		log:   log,
		known: map[[2]string]prometheus.Observer{},
		tools: map[[2]string]bool{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "patchbay_call_seconds",
			Help:    "Calls to servers by server, tool and outcome, and how long they took. Direct calls are missing where Envoy's access log is off.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"server", "tool", "outcome"}),
	}
	reg.MustRegister(r.seconds)
	return r
}

// Record takes in one call.
func (r *Recorder) Record(e *Ended) {
	if e.Outcome == Recovered {
		return // the broker reports it
	}
	r.observer(e).Observe(e.Duration.Seconds())
	if r.log == nil {
		return
	}
	r.log.LogAttrs(context.Background(), slog.LevelInfo, "call",
		slog.String("server", e.Server), slog.String("tool", e.Tool), slog.String("id", e.ID), slog.String("way", e.Way),
		slog.String("outcome", string(e.Outcome)), slog.Int("status", e.Status), slog.Time("start", e.Start),
		slog.Float64("duration_ms", float64(e.Duration)/float64(time.Millisecond)),
		slog.Uint64("request_bytes", e.RequestBytes), slog.Uint64("response_bytes", e.ResponseBytes))
}

func (r *Recorder) observer(e *Ended) prometheus.Observer {
	key := [2]string{e.Server, e.Tool}
	if e.Outcome == OK {
		r.mu.RLock()
		o := r.known[key]
		r.mu.RUnlock()
		if o != nil {
			return o
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	server, tool := e.Server, e.Tool
	if !r.tools[key] {
		if len(r.tools) >= MaxTools {
			server, tool = other, other
		} else {
			r.tools[key] = true
		}
	}
	o := r.seconds.WithLabelValues(server, tool, string(e.Outcome))
	if e.Outcome == OK && server == e.Server {
		r.known[key] = o
	}
	return o
}
