package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// capture asks an ext_proc server, as Envoy would, about a POST with this
// session and body, and returns its first answer: the one that the null server
// repeats. So both always set the same headers and metadata.
func capture(ctx context.Context, socket, sessionID string, body []byte) (*extprocv3.ProcessingResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	header := func(name, value string) *corev3.HeaderValue {
		return &corev3.HeaderValue{Key: name, RawValue: []byte(value)}
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		header(":method", "POST"), header(":path", "/mcp"), header(":authority", "127.0.0.1"), header(":scheme", "http"),
		header("content-type", "application/json"), header("user-agent", userAgent),
		header("mcp-session-id", sessionID), header("mcp-protocol-version", revision),
	}}
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}},
	} {
		if err := stream.Send(m); err != nil {
			return nil, fmt.Errorf("capture: %w", err)
		}
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return answer, nil
}

// captureDirect is capture for a call that must go direct. It also returns the
// cluster that the answer names.
func captureDirect(ctx context.Context, socket, sessionID string, body []byte) (answer *extprocv3.ProcessingResponse, cluster string, err error) {
	answer, err = capture(ctx, socket, sessionID, body)
	if err != nil {
		return nil, "", err
	}
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == clusterHeader {
			return answer, string(h.GetHeader().GetRawValue()), nil
		}
	}
	return nil, "", errors.New("capture: the call does not go direct")
}
