package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
)

// serverName is the fixture's name in the gateway's configuration.
const serverName = "fixture"

// bodyLimit is the gateway's default.
const bodyLimit = 4 << 20

// stage is a fixture and the shapes in front of it. Its main goroutine owns it.
type stage struct {
	opt       *options
	dir       string
	processes []*process
	fixture   string // its address
	shapes    []*shape
	idle      int64 // bytes that Patchbay takes before the first request
}

// startStage starts everything in front of a fixture with so many tools. On an
// error too, close ends what runs.
func startStage(ctx context.Context, opt *options, dir string, cases []benchCase) (*stage, error) {
	s := &stage{opt: opt, dir: dir}
	tools := 1 // the one that is called
	for i := range cases {
		tools = max(tools, cases[i].tools)
	}
	fixture, err := s.start("fixture", nil, opt.self, "fixture", strconv.Itoa(tools))
	if err != nil {
		return s, err
	}
	if s.fixture, err = fixture.line(); err != nil {
		return s, err
	}
	for _, v := range opt.variants() {
		if err := s.startPatchbay(ctx, v); err != nil {
			return s, err
		}
	}
	if err := s.startNull(ctx, cases); err != nil {
		return s, err
	}
	return s, s.startPlain(ctx)
}

func (s *stage) close() {
	for _, sh := range s.shapes {
		for _, c := range sh.clients {
			_ = c.conn.Close()
		}
	}
	for i := len(s.processes) - 1; i >= 0; i-- {
		s.processes[i].stop()
	}
}

func (s *stage) start(name string, env []string, path string, args ...string) (*process, error) {
	p, err := start(name, env, path, args...)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

func (s *stage) add(sh *shape) { s.shapes = append([]*shape{sh}, s.shapes...) }

// sockets are where a shape's Envoy finds its servers: paths, or host:port.
type sockets struct{ extproc, broker, xds string }

func (s *stage) sockets(name string) sockets {
	return sockets{s.file(name, "e"), s.file(name, "b"), s.file(name, "x")}
}

// file is the path of a shape's file.
func (s *stage) file(name, extension string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, " ", "-")+"."+extension)
}

func (a *sockets) flags() []string {
	broker := a.broker
	if strings.HasPrefix(broker, "/") {
		broker = "unix://" + broker
	}
	return []string{"--extproc=unix://" + a.extproc, "--broker=" + broker, "--xds=unix://" + a.xds}
}

// configure writes a gateway's configuration and the bootstrap that it renders
// of it.
func (s *stage) configure(ctx context.Context, name, listen, admin, more string, at sockets) (file string, bootstrap []byte, err error) {
	file = s.file(name, "yaml")
	text := fmt.Sprintf("listen: %s\nadmin: %s\nstateDir: %s\nservers:\n- {name: %s, url: \"http://%s/mcp\", poll: 1h, timeout: 30s}\n%s",
		listen, admin, s.file(name, "state"), serverName, s.fixture, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", nil, fmt.Errorf("configuration: %w", err)
	}
	bootstrap, err = output(ctx, s.opt.patchbay, append([]string{"render", "bootstrap", "--config", file}, at.flags()...)...)
	return file, bootstrap, err
}

// startEnvoy starts an Envoy with one worker and waits until it serves.
func (s *stage) startEnvoy(ctx context.Context, sh *shape, bootstrap []byte) error {
	file := s.file(sh.name, "envoy.yaml")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	var err error
	sh.envoy, err = s.start(sh.name+"'s Envoy", nil, s.opt.envoy, "-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
	if err != nil {
		return err
	}
	return sh.envoy.waitFor(ctx, "it listens", func(ctx context.Context) error {
		c, err := dial(ctx, sh.addr)
		if err == nil {
			_ = c.conn.Close()
		}
		return err
	})
}

// variant is one way to run Patchbay.
type variant struct {
	name, config string
	env          []string
}

// Whether Envoy reports on direct calls.
const (
	withoutLog = "calls: {direct: false}\n"
	withLog    = "calls: {direct: true}\n"
)

// variants are measured in this order after the others.
func (o *options) variants() []variant {
	all := []variant{{patchbayShape, withoutLog, nil}, {patchbayLogShape, withLog, nil}}
	for _, env := range o.also {
		all = append(all, variant{patchbayShape + " " + env, withoutLog, []string{env}})
	}
	return all
}

// startPatchbay starts the gateway and opens its sessions, each with its first
// call done, so that all further ones go direct.
func (s *stage) startPatchbay(ctx context.Context, v variant) error {
	admin, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	sh := &shape{name: v.name, fixed: never, callsOnly: v.config == withLog}
	if sh.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	at := s.sockets(v.name)
	file, bootstrap, err := s.configure(ctx, v.name, sh.addr, admin, v.config, at)
	if err != nil {
		return err
	}
	if sh.server, err = s.start(v.name, v.env, s.opt.patchbay, append([]string{"serve", "--config", file}, at.flags()...)...); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { _, err := get(ctx, "http://"+admin+"/readyz"); return err }
	if err := sh.server.waitFor(ctx, "it is ready", ready); err != nil {
		return err
	}
	if s.idle == 0 {
		if s.idle, err = settledRSS(ctx, sh.server); err != nil {
			return err
		}
	}
	if err := s.startEnvoy(ctx, sh, bootstrap); err != nil {
		return err
	}
	s.shapes = append(s.shapes, sh)
	sh.direct = func(ctx context.Context) (int, error) { return callsBy(ctx, admin, directLine) }
	return sh.openSessions(ctx)
}

// patchbay is the shape that the null server imitates.
func (s *stage) patchbay() *shape {
	for _, sh := range s.shapes {
		if sh.name == patchbayShape {
			return sh
		}
	}
	return nil
}

// nullAnswers asks Patchbay what the null server shall answer.
func (s *stage) nullAnswers(ctx context.Context, cases []benchCase) (answers map[string][]byte, cluster string, err error) {
	at, session := s.sockets(patchbayShape).extproc, s.patchbay().clients[0].sessionID
	call := callCase(64)
	direct, cluster, err := captureDirect(ctx, at, session, call.body)
	if err != nil {
		return nil, "", err
	}
	captured := map[string]*extprocv3.ProcessingResponse{"call": direct}
	for i := range cases {
		if k := &cases[i]; k.tools > 0 {
			if captured[k.key], err = capture(ctx, at, session, k.body); err != nil {
				return nil, "", err
			}
		}
	}
	answers = map[string][]byte{}
	for key, m := range captured {
		if answers[key], err = proto.Marshal(m); err != nil {
			return nil, "", fmt.Errorf("answer: %w", err)
		}
	}
	return answers, cluster, nil
}

// startNull starts the null server with an Envoy that is configured as
// Patchbay's.
func (s *stage) startNull(ctx context.Context, cases []benchCase) error {
	answers, cluster, err := s.nullAnswers(ctx, cases)
	if err != nil {
		return err
	}
	sh := &shape{name: nullShape, fixed: func(k *benchCase) bool { return k.tools > 0 }}
	if sh.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	at := s.sockets(sh.name)
	_, bootstrap, err := s.configure(ctx, sh.name, sh.addr, "127.0.0.1:0", withoutLog, at)
	if err != nil {
		return err
	}
	if sh.server, err = s.start(sh.name, nil, s.opt.self, "null"); err != nil {
		return err
	}
	if err := sh.server.tellJSON(nullConfig{
		ExtProc: at.extproc, XDS: at.xds, Cluster: cluster, Fixture: s.fixture, Answers: answers, BodyLimit: bodyLimit,
	}); err != nil {
		return err
	}
	sh.prepare = func(k *benchCase) error { return sh.server.tell(k.key) }
	if err := s.startEnvoy(ctx, sh, bootstrap); err != nil {
		return err
	}
	s.add(sh)
	// Its routes may be there before its cluster.
	call := callCase(64)
	if err := sh.prepare(&call); err != nil {
		return err
	}
	return sh.connect(ctx, s.patchbay().clients[0].sessionID)
}

// startPlain starts an Envoy that knows only the fixture.
func (s *stage) startPlain(ctx context.Context) error {
	sh := &shape{name: plainShape, fixed: never}
	var err error
	if sh.addr, err = freeAddress(ctx); err != nil {
		return err
	}
	_, bootstrap, err := s.configure(ctx, sh.name, sh.addr, "127.0.0.1:0", withoutLog, s.sockets(sh.name))
	if err != nil {
		return err
	}
	if bootstrap, err = plainBootstrap(bootstrap, s.fixture); err != nil {
		return err
	}
	if err := s.startEnvoy(ctx, sh, bootstrap); err != nil {
		return err
	}
	s.add(sh)
	for range connections {
		c, err := dial(ctx, sh.addr)
		if err != nil {
			return err
		}
		sh.clients = append(sh.clients, c)
		if err := c.open(); err != nil {
			return fmt.Errorf("%s: %w", sh.name, err)
		}
	}
	return nil
}
