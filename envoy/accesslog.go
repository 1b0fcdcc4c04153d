package envoy

import (
	"errors"
	"io"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"patchbay.dev/internal/calls"
	"patchbay.dev/internal/private"
)

const (
	accessLogName = "patchbay"
	// accessLogFlush is how long Envoy collects: it bounds how late a client
	// hears of an answer that broke off.
	accessLogFlush = 100 * time.Millisecond
	accessLogBytes = 64 << 10
)

// accessLog makes Envoy report each direct call to the gateway. Other requests
// carry none of our metadata and are not reported.
func accessLog() ([]*accesslogv3.AccessLog, error) {
	packed, err := pack(&grpclogv3.HttpGrpcAccessLogConfig{
		CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
			LogName:             accessLogName,
			GrpcService:         envoyGRPC(private.ClusterExtProc),
			TransportApiVersion: corev3.ApiVersion_V3,
			BufferFlushInterval: durationpb.New(accessLogFlush),
			BufferSizeBytes:     wrapperspb.UInt32(accessLogBytes),
		},
		AdditionalResponseHeadersToLog: []string{"content-type"},
	})
	if err != nil {
		return nil, err
	}
	return []*accesslogv3.AccessLog{{
		Name:       "patchbay.calls",
		Filter:     hasMetadata(private.KeyID),
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: packed},
	}}, nil
}

// AccessLog is the access log service: it hands each direct call that Envoy
// reports to Ended, which is called by one goroutine for each connected Envoy
// worker and must not block.
type AccessLog struct {
	alsv3.UnimplementedAccessLogServiceServer

	Ended func(*calls.Ended)
}

// Register adds the service to a gRPC server; Envoy looks for it where ext_proc is.
func (a *AccessLog) Register(s grpc.ServiceRegistrar) { alsv3.RegisterAccessLogServiceServer(s, a) }

// StreamAccessLogs implements the service.
func (a *AccessLog) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range msg.GetHttpLogs().GetLogEntry() {
			if call, ok := ended(e); ok {
				a.Ended(call)
			}
		}
	}
}

func ended(e *datav3.HTTPAccessLogEntry) (*calls.Ended, bool) {
	common := e.GetCommonProperties()
	meta := common.GetMetadata().GetFilterMetadata()[private.Namespace].GetFields()
	if meta[private.KeyID] == nil {
		return nil, false
	}
	text := func(key string) string { return meta[key].GetStringValue() }
	c := &calls.Ended{
		Server: text(private.KeyServer), Tool: text(private.KeyTool), ID: text(private.KeyID), Recover: text(private.KeyRecover),
		Way:           "direct",
		Status:        int(e.GetResponse().GetResponseCode().GetValue()),
		Start:         common.GetStartTime().AsTime(),
		Duration:      common.GetDuration().AsDuration(),
		RequestBytes:  e.GetRequest().GetRequestBodyBytes(),
		ResponseBytes: e.GetResponse().GetResponseBodyBytes(),
		EventStream:   isEventStream(e.GetResponse().GetResponseHeaders()["content-type"]),
	}
	if c.Duration == 0 {
		c.Duration = common.GetTimeToLastDownstreamTxByte().AsDuration()
	}
	c.Outcome = outcome(common, c.Status)
	return c, true
}

// outcome reads Envoy's response flags. Order matters: a timeout also resets the
// upstream, and a client that leaves ends everything behind it.
func outcome(common *datav3.AccessLogCommon, status int) calls.Outcome {
	f := common.GetResponseFlags()
	switch {
	case common.GetUpstreamCluster() == private.ClusterBroker:
		return calls.Recovered
	case f.GetUpstreamRequestTimeout(), f.GetStreamIdleTimeout(), f.GetDurationTimeout(), f.GetUpstreamMaxStreamDurationReached():
		return calls.Timeout
	case f.GetDownstreamConnectionTermination(), f.GetDownstreamRemoteReset():
		return calls.ClientGone
	case f.GetNoHealthyUpstream(), f.GetUpstreamConnectionFailure(), f.GetUpstreamOverflow(), f.GetNoClusterFound(),
		f.GetUpstreamRetryLimitExceeded(), f.GetDnsResolutionFailure():
		return calls.Unavailable
	case f.GetUpstreamConnectionTermination(), f.GetUpstreamRemoteReset(), f.GetUpstreamProtocolError(), f.GetLocalReset():
		return calls.Broken
	case status >= 400:
		return calls.HTTPError
	}
	return calls.OK
}

func isEventStream(contentType string) bool {
	const t = "text/event-stream"
	return len(contentType) >= len(t) && contentType[:len(t)] == t
}
