// Package tune holds the settings of gRPC and of the Go runtime that were chosen
// by measuring (docs/benchmarks.md). They stand in one place so that the null
// server of the benchmarks runs with the same ones as the gateway.
//
// It keeps no state.
package tune

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// streamWorkers are the goroutines that gRPC reuses for streams, two per core
// of a small machine: starting one for each request grows its stack anew.
const streamWorkers = 4

// GRPC returns the options of the gateway's gRPC servers.
func GRPC() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(4 << 20), // Envoy sends bodies in chunks of at most 64 KiB
		grpc.MaxConcurrentStreams(65536),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		// Envoy pings every second, to notice a frozen process; without this
		// gRPC takes that for an attack and closes the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	}
}
