package extproc_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"patchbay.dev/extproc"
	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/session"
	"patchbay.dev/router"
)

// Envoy cuts bodies as it likes; what goes back is cut to 64 KiB at most.
func TestChunks(t *testing.T) {
	f := newFixture(t)
	token := f.ready(plain())
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 100, 64<<10 - 101, 64<<10 - 90, 64 << 10, 200 << 10, 1<<20 - 200} {
		args := `{"t":"` + strings.Repeat("0123456789abcdef", n/16+1)[:n] + `"}`
		body := call("s_echo", args)
		for _, trailers := range []bool{false, true} {
			s := f.stream()
			s.headers(false, mcp.HeaderSessionID, token)
			rest := body
			for len(rest) > 0 {
				k := min(len(rest), 1+rnd.IntN(64<<10))
				s.body(rest[:k], k == len(rest) && !trailers)
				rest = rest[k:]
			}
			if trailers {
				s.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
					RequestTrailers: &extprocv3.HttpTrailers{},
				}})
			}
			h, got, chunks := s.forwarded()
			assert.NotNil(t, h.GetDynamicMetadata())
			assert.True(t, call("echo", args) == string(got), "%d bytes: another body came", n)
			assert.LessOrEqual(t, slices.Max(chunks), 64<<10)
			_, err := s.Recv()
			require.ErrorIs(t, err, io.EOF, "all is said")
			require.NoError(t, f.ended())
		}
	}
	s := f.one("", "x", "y")
	assert.Contains(t, string(s.immediate().GetBody()), "the body is empty")
}

// 413 comes as soon as the body is over the limit, not at its end.
func TestBodyOverTheLimitIsRefusedInTheMiddle(t *testing.T) {
	f := newFixture(t)
	_, token := f.table.New(session.Claims{Revision: 3})
	s := f.stream()
	s.headers(false, "mcp-session-id", token)
	half := strings.Repeat("x", bodyLimit/2)
	s.body(half, false)
	s.body(half, false)
	s.body("x", false)
	r := s.immediate()
	assert.EqualValues(t, 413, r.GetStatus().GetCode())
	assert.Contains(t, string(r.GetBody()), `"code":-32600,"message":"the request body is over the limit of 1048576 bytes"`)
	require.NoError(t, f.ended())
	assert.Equal(t, []string{"other reply too_large"}, f.metrics.take())
	at := f.one(strings.Repeat(" ", bodyLimit-2)+"{}", "mcp-session-id", token)
	assert.EqualValues(t, 400, at.immediate().GetStatus().GetCode(), "exactly the limit is read")
}

// Who has no session cannot make the gateway hold a large body.
func TestLargeBodyOfAStranger(t *testing.T) {
	f := newFixture(t)
	for want, headers := range map[int32][]string{400: nil, 404: {"mcp-session-id", "forged"}} {
		s := f.stream()
		s.headers(false, headers...)
		s.body(strings.Repeat("x", router.SmallBody), false)
		s.body("x", false)
		assert.EqualValues(t, want, s.immediate().GetStatus().GetCode())
		require.NoError(t, f.ended())
	}
}

// All large bodies together are bounded, and what a request held is free when it
// ends, however it ends. Small ones always pass.
func TestBufferLimit(t *testing.T) {
	f := newFixture(t)
	_, token := f.table.New(session.Claims{Revision: 3})
	const counted = bodyLimit - router.SmallBody
	var held []*stream
	for range bufferLimit / counted {
		s := f.stream()
		s.headers(false, "mcp-session-id", token)
		s.body(strings.Repeat("x", bodyLimit), false)
		held = append(held, s)
	}
	refused := func() bool {
		s := f.one(strings.Repeat("x", bodyLimit), "mcp-session-id", token)
		code := s.immediate().GetStatus().GetCode()
		require.NoError(t, f.ended())
		return code == 503
	}
	// Only now: a body in between could take the place of one that is held.
	require.Eventually(t, func() bool { return f.server.Buffered() == int64(len(held))*counted }, wait, time.Millisecond)
	assert.True(t, refused())
	assert.Contains(t, f.metrics.take(), "other reply overloaded")
	small := f.one("{}")
	assert.EqualValues(t, 400, small.immediate().GetStatus().GetCode())
	require.NoError(t, f.ended())
	held[0].cancel()
	require.Error(t, f.ended())
	assert.False(t, refused())
	require.NoError(t, held[1].CloseSend())
	require.Error(t, f.ended())
	held[2].body("x", false)
	assert.EqualValues(t, 413, held[2].immediate().GetStatus().GetCode())
	require.NoError(t, f.ended())
	for range 2 * bufferLimit / counted {
		s := f.one(strings.Repeat("x", bodyLimit), "mcp-session-id", token)
		assert.EqualValues(t, 400, s.immediate().GetStatus().GetCode())
		require.NoError(t, f.ended())
	}
}

// Envoy lets a request pass unmodified when its stream ends with OK too early.
func TestAbortIsNeverOK(t *testing.T) {
	f := newFixture(t)
	for name, play := range map[string]func(*stream){
		"before anything":   func(*stream) {},
		"after the headers": func(s *stream) { s.headers(false) },
		"in the body":       func(s *stream) { s.headers(false); s.body(`{"jsonrpc"`, false) },
	} {
		s := f.stream()
		play(s)
		require.NoError(t, s.CloseSend())
		_, err := s.Recv()
		assert.Equal(t, codes.Aborted, status.Code(err), "%s: half closed", name)
		require.Error(t, f.ended())

		s = f.stream()
		play(s)
		s.cancel()
		_, err = s.Recv()
		require.Error(t, err)
		if err := f.ended(); assert.Error(t, err, name) {
			assert.Contains(t, []codes.Code{codes.Canceled, codes.Aborted}, status.Code(err), "%s: reset", name)
		}
	}
	assert.Empty(t, f.metrics.take())
}

func TestUnexpectedMessages(t *testing.T) {
	f := newFixture(t)
	headers := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}}
	body := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{EndOfStream: true}}}
	for name, play := range map[string][]*extprocv3.ProcessingRequest{
		"nothing in it":         {{}},
		"body first":            {body},
		"trailers first":        {{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}},
		"response headers":      {{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}}},
		"response body":         {headers, {Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{}}}},
		"response trailers":     {headers, {Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}},
		"nothing after headers": {headers, {}},
	} {
		s := f.stream()
		for _, m := range play {
			s.send(m)
		}
		_, err := s.Recv()
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "%s: %v", name, err)
		assert.Contains(t, err.Error(), "check processing_mode", name)
		require.Error(t, f.ended())
	}
}

// panicking is a router that panics where it is told to.
type panicking struct{ extproc.Router }

func (p panicking) Decide(r *router.Request) router.Decision {
	switch string(r.Body) {
	case "panic":
		panic("as told")
	case "half":
		// Without a session, the headers of a direct call cannot be made.
		return router.Decision{Way: router.Direct}
	}
	return p.Router.Decide(r)
}

func TestPanicEndsItsRequestAlone(t *testing.T) {
	f := newFixture(t, func(s *extproc.Server) { s.Router = panicking{s.Router} })
	other := f.stream()
	other.headers(false)
	for i, body := range []string{"panic", "half"} {
		r := f.one(body).immediate()
		assert.EqualValues(t, 500, r.GetStatus().GetCode())
		assert.Contains(t, string(r.GetBody()), "internal error in the gateway")
		assert.NotContains(t, string(r.GetBody()), "as told")
		require.NoError(t, f.ended())
		assert.Equal(t, i+1, f.metrics.panics)
	}
	assert.Contains(t, f.log.String(), "as told")
	assert.Contains(t, f.log.String(), "panicking.Decide", "with the place")
	other.body(initialize, true)
	_, body, _ := other.forwarded()
	assert.Equal(t, initialize, string(body))
}

// Until the catalog is known, requests wait; those that are given up do not
// count, and never pass.
func TestRequestsWaitUntilTheServersWereTried(t *testing.T) {
	settled := make(chan struct{})
	f := newFixture(t, func(s *extproc.Server) { s.Settled = settled })
	given := f.one(initialize)
	waits := f.one(initialize)
	for range 20 { // by then both have been read
		s := f.stream()
		s.send(&extprocv3.ProcessingRequest{})
		_, err := s.Recv()
		require.Error(t, err)
		require.Error(t, f.ended())
	}
	given.cancel()
	_, err := given.Recv()
	require.Error(t, err)
	assert.Equal(t, codes.Canceled, status.Code(f.ended()))
	close(settled)
	_, body, _ := waits.forwarded()
	assert.Equal(t, initialize, string(body))
	require.NoError(t, f.ended())
}

func TestManyStreamsAtOnce(t *testing.T) {
	f := newFixture(t)
	token := f.ready(plain())
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			c, err := extprocv3.NewExternalProcessorClient(f.conn).Process(ctx)
			if !assert.NoError(t, err) {
				return
			}
			s := &stream{f, c, cancel}
			args := fmt.Sprintf(`{"i":%d,"t":%q}`, i, strings.Repeat("x", i*100))
			s.headers(false, mcp.HeaderSessionID, token)
			s.body(call("s_echo", args), true)
			_, body, _ := s.forwarded()
			assert.Equal(t, call("echo", args), string(body))
		})
	}
	wg.Wait()
	for range 200 {
		require.NoError(t, f.ended())
	}
	assert.Len(t, f.metrics.take(), 200)
}
