package calls_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/calls"
)

// series counts the observations by server, tool and outcome.
func series(t *testing.T, reg *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			l := map[string]string{}
			for _, p := range m.GetLabel() {
				l[p.GetName()] = p.GetValue()
			}
			out[l["server"]+"/"+l["tool"]+"/"+l["outcome"]] += m.GetHistogram().GetSampleCount()
		}
	}
	return out
}

func TestRecord(t *testing.T) {
	reg := prometheus.NewRegistry()
	var log bytes.Buffer
	r := calls.NewRecorder(reg, slog.New(slog.NewJSONHandler(&log, nil)))
	e := &calls.Ended{
		Server: "s", Tool: "t", ID: `"a\"b"`, Way: "direct", Outcome: calls.OK, Status: 200,
		Start: time.Unix(1, 0).UTC(), Duration: 1500 * time.Microsecond, RequestBytes: 3, ResponseBytes: 4,
	}
	r.Record(e)
	r.Record(e)
	r.Record(&calls.Ended{Server: "s", Tool: "t", Outcome: calls.Timeout})
	r.Record(&calls.Ended{Server: "s", Tool: "t", Outcome: calls.Recovered})
	assert.Equal(t, map[string]uint64{"s/t/ok": 2, "s/t/timeout": 1}, series(t, reg), "the broker reports a recovered one")

	line, _, _ := bytes.Cut(log.Bytes(), []byte("\n"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(line, &got))
	delete(got, "time")
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "call", "server": "s", "tool": "t", "id": `"a\"b"`, "way": "direct", "outcome": "ok",
		"status": 200., "start": "1970-01-01T00:00:01Z", "duration_ms": 1.5, "request_bytes": 3., "response_bytes": 4.,
	}, got)
	assert.Equal(t, 3, bytes.Count(log.Bytes(), []byte("\n")))
}

// Backends choose their tools' names: the labels are bounded.
func TestLabelsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := calls.NewRecorder(reg, nil)
	for i := range calls.MaxTools + 50 {
		for range 2 {
			r.Record(&calls.Ended{Server: "s", Tool: fmt.Sprint(i), Outcome: calls.OK})
		}
	}
	all := series(t, reg)
	assert.Len(t, all, calls.MaxTools+1)
	assert.EqualValues(t, 100, all["OTHER/OTHER/ok"])
}
