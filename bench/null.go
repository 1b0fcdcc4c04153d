package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"patchbay.dev/envoy"
	"patchbay.dev/internal/private"
	"patchbay.dev/internal/tune"
)

const clusterHeader = private.HeaderCluster

// nullConfig is what the null server's process reads from its input first, one
// line of JSON. The lines after it are the key of the answer to give from now
// on; each is acknowledged by a line.
type nullConfig struct {
	// ExtProc and XDS are the sockets to listen on.
	ExtProc, XDS string
	// Cluster is the name of the fixture's cluster, Fixture its address.
	Cluster, Fixture string
	BodyLimit        int64
	// Answers are encoded ProcessingResponses: to the headers (the body then
	// follows as it came), or immediate.
	Answers map[string][]byte
}

// nullServer is the least that an ext_proc server can do in this mode: it reads
// headers and body, and answers with the same bytes each time.
type nullServer struct {
	extprocv3.UnimplementedExternalProcessorServer

	answers map[string]*extprocv3.ProcessingResponse
	answer  atomic.Pointer[extprocv3.ProcessingResponse]
}

var errUnknownAnswer = errors.New("no answer of that key")

func newNullServer(encoded map[string][]byte) (*nullServer, error) {
	s := &nullServer{answers: map[string]*extprocv3.ProcessingResponse{}}
	for key, b := range encoded {
		m := new(extprocv3.ProcessingResponse)
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, fmt.Errorf("null server: answer %s: %w", key, err)
		}
		s.answers[key] = m
	}
	return s, nil
}

// use sets the answer from now on.
func (s *nullServer) use(key string) error {
	m, ok := s.answers[key]
	if !ok {
		return fmt.Errorf("null server: %w: %s", errUnknownAnswer, key)
	}
	s.answer.Store(m)
	return nil
}

// Process serves one request.
func (s *nullServer) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	var body []byte
	for end := false; !end; {
		m, err := stream.Recv()
		if err != nil {
			return status.Error(codes.Aborted, "the stream ended before the request did")
		}
		end = m.GetRequestHeaders().GetEndOfStream() || m.GetRequestBody().GetEndOfStream()
		if chunk := m.GetRequestBody().GetBody(); body == nil {
			body = chunk
		} else {
			body = append(body, chunk...)
		}
	}
	answer := s.answer.Load()
	if answer == nil {
		return status.Error(codes.FailedPrecondition, "no answer was chosen")
	}
	if err := stream.Send(answer); err != nil || answer.GetImmediateResponse() != nil {
		return err //nolint:wrapcheck // of the stream
	}
	const maxChunk = 64 << 10
	for len(body) > maxChunk {
		if err := stream.Send(bodyAnswer(body[:maxChunk], false)); err != nil {
			return err //nolint:wrapcheck // of the stream
		}
		body = body[maxChunk:]
	}
	return stream.Send(bodyAnswer(body, true)) //nolint:wrapcheck // of the stream
}

func bodyAnswer(chunk []byte, end bool) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
			BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
				StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end},
			}},
		}},
	}}
}

// runNull is the null server's process. It ends with its input.
func runNull(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var cfg nullConfig
	first, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &cfg)
	}
	if err != nil {
		return fmt.Errorf("null server: configuration: %w", err)
	}
	if err := tune.Process(); err != nil {
		return fmt.Errorf("null server: %w", err)
	}
	s, err := newNullServer(cfg.Answers)
	if err != nil {
		return err
	}
	x, err := nullXDS(&cfg)
	if err != nil {
		return err
	}
	defer x.Close()
	grp, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	register := func(r grpc.ServiceRegistrar) { extprocv3.RegisterExternalProcessorServer(r, s) }
	if err := serveNull(ctx, grp, cfg.ExtProc, register); err != nil {
		return err
	}
	if err := serveNull(ctx, grp, cfg.XDS, x.Register); err != nil {
		return err
	}
	fmt.Fprintln(out, "serving")
	grp.Go(func() error {
		defer cancel()
		return s.obey(lines, out)
	})
	return grp.Wait() //nolint:wrapcheck // each part names itself
}

// obey changes the answer as told until the input ends.
func (s *nullServer) obey(in *bufio.Reader, out io.Writer) error {
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("null server: input: %w", err)
		}
		if err := s.use(line[:len(line)-1]); err != nil {
			return err
		}
		fmt.Fprintln(out, "ok")
	}
}

// nullXDS gives Envoy the gateway's routes and one server.
func nullXDS(cfg *nullConfig) (*envoy.XDS, error) {
	routes, err := envoy.Routes(envoy.RouteOptions{BodyLimit: cfg.BodyLimit})
	if err != nil {
		return nil, fmt.Errorf("null server: %w", err)
	}
	x := envoy.NewXDS(nil, nil)
	if err := x.SetRoutes(routes); err != nil {
		return nil, fmt.Errorf("null server: %w", err)
	}
	up := envoy.Upstream{Cluster: cfg.Cluster, URL: &url.URL{Scheme: "http", Host: cfg.Fixture, Path: "/mcp"}}
	if err := x.SetUpstreams([]envoy.Upstream{up}); err != nil {
		return nil, fmt.Errorf("null server: %w", err)
	}
	return x, nil
}

// serveNull serves on the socket, with the settings of the gateway, until ctx is
// done.
func serveNull(ctx context.Context, grp *errgroup.Group, socket string, register func(grpc.ServiceRegistrar)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("null server: %w", err)
	}
	server := grpc.NewServer(tune.GRPC()...)
	register(server)
	context.AfterFunc(ctx, server.Stop)
	grp.Go(func() error {
		if err := server.Serve(l); err != nil && ctx.Err() == nil {
			return fmt.Errorf("null server: %w", err)
		}
		return nil
	})
	return nil
}
