package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"patchbay.dev/internal/mcptest"
)

var updateTranscripts = flag.Bool("update", false, "write the answers in testdata/transcripts anew, as they come through Envoy")

const (
	transcripts = "testdata/transcripts"
	// transcriptTop makes small what is limited, so that the limits can be met.
	transcriptTop = "origins: [" + page + "]\npageSize: 5\nbodyLimit: 65536\n"
)

// The two ways are one: what the broker answers by itself is what a client gets
// through Envoy, whether a request is answered by ext_proc, sent straight to its
// backend or served by the broker. testdata/transcripts/README.md explains the
// files.
func TestTranscripts(t *testing.T) {
	servers := transcriptServers(t)
	g := upWith(t, transcriptTop, servers...)
	alone := serveAlone(t, transcriptTop, servers...)
	files, err := filepath.Glob(filepath.Join(transcripts, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			tr := readTranscript(t, file)
			got := tr.play(t, g.URL())
			if *updateTranscripts {
				tr.update(t, got)
			}
			tr.compare(t, "through Envoy", got)
			tr.compare(t, "the broker alone", tr.play(t, alone))
		})
	}
	for method := range repeated {
		direct := g.metric("patchbay_requests_total", `method="`+method+`"`, `way="direct"`)
		broker := g.metric("patchbay_requests_total", `method="`+method+`"`, `way="broker"`)
		assert.Positive(t, direct, "%s went the direct way", method)
		assert.Positive(t, broker, "%s went the broker's way", method)
	}
}

// serveAlone starts a gateway without an Envoy and returns the broker's endpoint.
func serveAlone(t *testing.T, top string, servers ...string) string {
	t.Helper()
	broker, admin := freeAddress(t), freeAddress(t)
	cfg := writeFile(t, "patchbay.yaml", fmt.Sprintf("listen: %s\nadmin: %s\nstateDir: state\n%sservers:\n%s",
		freeAddress(t), admin, top, strings.Join(servers, "")), 0o600)
	daemonOf(t, binary, "serve", "--config", cfg, "--broker", broker, "--extproc", freeAddress(t), "--xds", freeAddress(t))
	require.Eventually(t, func() bool {
		status, _ := readyStatus(t.Context(), admin)
		return status == http.StatusOK
	}, patience, 10*time.Millisecond)
	return "http://" + broker + "/mcp"
}

// transcriptServers starts the backends of servers/*.txtar and returns their
// entries.
func transcriptServers(t *testing.T) []string {
	t.Helper()
	return []string{
		entry("plain", transcriptServer(t, "plain", nil)),
		entry("events", transcriptServer(t, "events", func(s *mcptest.Server) { s.SSE, s.Prime = true, true })),
		entry("bare", transcriptServer(t, "bare", func(s *mcptest.Server) { s.Sessions = false }), "prefix: ''"),
	}
}

// transcriptServer starts the backend that a file describes: the sections tools,
// prompts, resources and templates are its lists, and "METHOD NAME" is its answer
// to calls of that name, in the form of a transcript's response, where $id is the
// id of the call. What is not there is answered as mcptest does.
func transcriptServer(t *testing.T, name string, configure func(*mcptest.Server)) *mcptest.Server {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join(transcripts, "servers", name+".txtar"))
	require.NoError(t, err)
	sections := map[string][]byte{}
	for _, f := range a.Files {
		sections[f.Name] = f.Data
	}
	list := func(name string) []string {
		if raw, ok := sections[name]; ok {
			return []string{string(raw)}
		}
		return nil
	}
	return mcptest.New(t, func(s *mcptest.Server) {
		s.Name, s.Instructions = name, "What "+name+" is for."
		s.Tools, s.Prompts, s.Resources, s.Templates = list("tools"), list("prompts"), list("resources"), list("templates")
		s.Intercept = func(w http.ResponseWriter, r *mcptest.Request) bool {
			var about struct{ Name, URI string }
			_ = json.Unmarshal(r.Params, &about) // no params: about nothing
			raw, ok := sections[r.Method+" "+about.Name+about.URI]
			if ok {
				writeCanned(w, bytes.ReplaceAll(raw, []byte("$id"), r.ID))
			}
			return ok
		}
		if configure != nil {
			configure(s)
		}
	})
}

func writeCanned(w http.ResponseWriter, raw []byte) {
	head, body, _ := bytes.Cut(raw, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Add(name, value)
	}
	status, _ := strconv.Atoi(lines[0]) // 0 panics in WriteHeader: a bad file
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// transcript is a file of requests and the answers to them.
type transcript struct {
	file    string
	archive *txtar.Archive
	steps   []turn
}

// turn is one request.
type turn struct {
	name    string
	request []byte
	want    string // the answer in the form of render
}

const (
	sectionSession  = "session"
	sectionRequest  = "request "
	sectionResponse = "response"
)

func readTranscript(t *testing.T, file string) *transcript {
	t.Helper()
	a, err := txtar.ParseFile(file)
	require.NoError(t, err)
	tr := &transcript{file: file, archive: a}
	for _, f := range a.Files {
		name, isRequest := strings.CutPrefix(f.Name, sectionRequest)
		switch {
		case isRequest:
			tr.steps = append(tr.steps, turn{name: name, request: f.Data})
		case f.Name == sectionResponse && len(tr.steps) > 0 && tr.steps[len(tr.steps)-1].want == "":
			tr.steps[len(tr.steps)-1].want = string(f.Data)
		case f.Name != sectionSession:
			require.Failf(t, "unknown section", "%s: %s", file, f.Name)
		}
	}
	require.NotEmpty(t, tr.steps)
	return tr
}

// update writes the answers into the file.
func (tr *transcript) update(t *testing.T, answers []string) {
	t.Helper()
	out := &txtar.Archive{Comment: tr.archive.Comment}
	n := 0
	for _, f := range tr.archive.Files {
		if f.Name == sectionResponse {
			continue
		}
		out.Files = append(out.Files, f)
		if f.Name != sectionSession {
			out.Files = append(out.Files, txtar.File{Name: sectionResponse, Data: []byte(answers[n])})
			tr.steps[n].want = answers[n]
			n++
		}
	}
	require.NoError(t, os.WriteFile(tr.file, txtar.Format(out), 0o600))
}

func (tr *transcript) compare(t *testing.T, way string, got []string) {
	t.Helper()
	for i, s := range tr.steps {
		assert.Equal(t, s.want, got[i], "%s: %s", s.name, way)
	}
}

// repeated are the methods that go to one backend: what is asked first in a
// session takes the broker's way, and what is asked again the direct one.
var repeated = map[string]bool{
	"tools/call": true, "prompts/get": true, "resources/read": true, "completion/complete": true,
}

// play sends the requests and returns the answers.
func (tr *transcript) play(t *testing.T, url string) []string {
	t.Helper()
	p := &player{t: t, url: url, vars: map[string]string{
		"$huge": strings.Repeat("x", 1<<16), "$deep": strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70),
		"$ff": "\xff", "$nul": "\x00",
	}}
	if tr.archive.Files[0].Name == sectionSession {
		p.open(tr.archive.Files[0].Data)
	}
	var out []string
	for _, s := range tr.steps {
		head, body := cutHead(s.request)
		answer := p.send(head, body)
		var m struct{ Method string }
		if json.Unmarshal(body, &m) == nil && repeated[m.Method] {
			assert.Equal(t, answer, p.send(head, body), "%s: the first and the second time", s.name)
		}
		out = append(out, answer)
	}
	return out
}

// cutHead separates the lines before the first empty one from the rest.
func cutHead(section []byte) (head []string, body []byte) {
	if rest, ok := bytes.CutPrefix(section, []byte("\n")); ok {
		return nil, bytes.TrimSuffix(rest, []byte("\n"))
	}
	raw, body, _ := bytes.Cut(section, []byte("\n\n"))
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), bytes.TrimSuffix(body, []byte("\n"))
}

// player sends the requests of one transcript one way.
type player struct {
	t    *testing.T
	url  string
	vars map[string]string // what changes from run to run, or is better not written out
}

// open opens the session that the transcript is about.
func (p *player) open(params []byte) {
	p.t.Helper()
	answer := p.send(nil, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":%s}`, params))
	require.Contains(p.t, p.vars, "$session", answer)
	var asked struct{ ProtocolVersion string }
	require.NoError(p.t, json.Unmarshal(params, &asked))
	p.vars["$revision"] = asked.ProtocolVersion
	answer = p.send(nil, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	require.Equal(p.t, "202\n", answer)
}

// send sends one request and returns the answer in the form of a file.
func (p *player) send(head []string, body []byte) string {
	p.t.Helper()
	method := http.MethodPost
	if len(head) > 0 && !strings.Contains(head[0], ":") {
		method, head = head[0], head[1:]
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url, strings.NewReader(p.expand(string(body))))
	require.NoError(p.t, err)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if session := p.vars["$session"]; session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", cmp.Or(p.vars["$revision"], "2025-11-25"))
	}
	own := map[string]bool{}
	for _, line := range head {
		name, value, ok := strings.Cut(line, ":")
		require.True(p.t, ok, "a header is NAME: VALUE, and not %q", line)
		if !own[name] {
			own[name] = true
			req.Header.Del(name)
		}
		if value = strings.TrimSpace(value); value != "" {
			req.Header.Add(name, p.expand(value))
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	return p.render(method, resp)
}

func (p *player) expand(text string) string {
	for name, value := range p.vars {
		text = strings.ReplaceAll(text, name, value)
	}
	return text
}

// told are the response headers that are compared. Vary is not among them: Envoy's
// filter for pages adds none, and nothing here is kept by a cache.
var told = []string{
	"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Allow", "Content-Type", "Location",
	"Mcp-Session-Id", "Retry-After", "Set-Cookie", "Www-Authenticate", "X-Of-Backend",
}

var (
	ownVersion = regexp.MustCompile(`("title":"Patchbay","version":)"[^"]*"`)
	nextCursor = regexp.MustCompile(`"nextCursor":"([^"]*)"`)
)

// render writes an answer as it stands in a file, and remembers its session id
// and cursor. The stream of a GET has no end, so only its head is looked at.
func (p *player) render(asked string, resp *http.Response) string {
	p.t.Helper()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		p.vars["$session"] = id
		resp.Header.Set("Mcp-Session-Id", "$session")
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", resp.StatusCode)
	for _, name := range told {
		for _, value := range resp.Header.Values(name) {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	events := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if events && asked == http.MethodGet {
		return out.String()
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	if m := nextCursor.FindSubmatch(body); m != nil {
		p.vars["$cursor"] = string(m[1])
		body = nextCursor.ReplaceAll(body, []byte(`"nextCursor":"$$cursor"`))
	}
	body = ownVersion.ReplaceAll(body, []byte(`$1"$$version"`))
	if session := p.vars["$session"]; session != "" {
		body = bytes.ReplaceAll(body, []byte(session), []byte("$session"))
	}
	switch {
	case len(body) == 0:
	case events:
		out.WriteString("\n" + renderEvents(body))
	default:
		out.WriteString("\n" + renderJSON(body) + "\n")
	}
	return out.String()
}

// renderJSON indents what is JSON. Numbers, escapes and the order of keys stay.
func renderJSON(body []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, body, "", "  ") != nil {
		return string(bytes.TrimSpace(body))
	}
	return out.String()
}

// renderEvents writes a stream without its comments, its ids and the events that
// bring only an id: who speaks on the last leg writes them, on the broker's way
// the gateway and on the direct one the server.
func renderEvents(body []byte) string {
	var out, event strings.Builder
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "id:") {
			event.WriteString(line)
		}
		if strings.TrimRight(line, "\r\n") == "" {
			if strings.TrimSpace(event.String()) != "data:" {
				out.WriteString(event.String())
			}
			event.Reset()
		}
	}
	return out.String() + event.String()
}
