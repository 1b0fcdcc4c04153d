package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// The null server gives the answer that it was told, until it is told another,
// and ends with its input.
func TestNullServer(t *testing.T) {
	direct := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
			SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: clusterHeader, RawValue: []byte("c1")}}},
		}}},
	}}
	reply := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{Body: []byte("the list")},
	}}
	dir := t.TempDir()
	cfg := nullConfig{
		ExtProc: filepath.Join(dir, "e"), XDS: filepath.Join(dir, "x"),
		Cluster: "c1", Fixture: "127.0.0.1:9", BodyLimit: bodyLimit,
		Answers: map[string][]byte{"call": encode(t, direct), "list": encode(t, reply)},
	}
	inReader, in := io.Pipe()
	out, outWriter := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- runNull(context.Background(), inReader, outWriter) }()
	lines := bufio.NewReader(out)
	tell := func(line string) {
		_, err := io.WriteString(in, line+"\n")
		require.NoError(t, err)
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	first, err := json.Marshal(cfg)
	require.NoError(t, err)
	tell(string(first))

	_, err = capture(context.Background(), cfg.ExtProc, "s", []byte("{}"))
	require.Error(t, err, "no answer was chosen")
	tell("call")
	got, cluster, err := captureDirect(context.Background(), cfg.ExtProc, "s", []byte("{}"))
	require.NoError(t, err)
	assert.True(t, proto.Equal(direct, got))
	assert.Equal(t, "c1", cluster)
	tell("list")
	got, err = capture(context.Background(), cfg.ExtProc, "s", []byte("{}"))
	require.NoError(t, err)
	assert.True(t, proto.Equal(reply, got))
	_, _, err = captureDirect(context.Background(), cfg.ExtProc, "s", []byte("{}"))
	require.Error(t, err, "a reply is no direct call")

	require.NoError(t, in.Close())
	require.NoError(t, <-done)
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

func TestPlainBootstrapHasNoExtProc(t *testing.T) {
	gateway, err := gatewayBootstrap()
	require.NoError(t, err)
	require.Contains(t, string(gateway), "ext_proc")
	plain, err := plainBootstrap(gateway, "127.0.0.1:7")
	require.NoError(t, err)
	assert.NotContains(t, string(plain), "ext_proc")
	assert.NotContains(t, string(plain), "ads")
	for _, kept := range []string{"max_request_headers_kb", "early_header_mutation", "local_reply_config", "port_value: 7"} {
		assert.True(t, bytes.Contains(plain, []byte(kept)), kept)
	}
	_, err = plainBootstrap(plain, "127.0.0.1:7")
	assert.Error(t, err, "nothing to remove")
}
