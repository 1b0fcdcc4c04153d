// Package tune holds the settings of gRPC and of the Go runtime that were chosen
// by measuring (docs/benchmarks.md, and `bin/bench -also GOGC=200` for other
// values). They stand in one place so that the null server of the benchmarks
// runs with the same ones as the gateway.
//
// Flow: main calls Process once, before it starts anything, and GRPC for each
// server. From then on the garbage collector is paced by what lives (garbage.go),
// on the runtime's goroutine for finalizers; the package keeps no other state.
package tune

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

const (
	// gcPercent is how much the heap may grow, in percent of what lives, before
	// it is collected. What lives is small (a catalog, 2 KB a session) and each
	// request makes much garbage: against Go's 100, 400 saves a tenth of the
	// process's CPU per call and a fifth per list; 800 saved no more. It goes
	// down when more lives: see headroom.
	gcPercent = 400

	// memoryLimit is where the collector begins to work harder, in bytes: the
	// heap of a gateway that has much to hold must not grow to five times that.
	memoryLimit = 1 << 30

	// streamWorkers are the goroutines that gRPC reuses for streams, two per
	// core of a small machine: starting one for each request grows its stack
	// anew. With 1 a call costs a tenth more, with 16 and 64 no less.
	streamWorkers = 4
)

// poolSizes are the sizes of gRPC's buffers, as exponents of 2. Its own have none
// between 32 KiB and 1 MiB, and a buffer is cleared whole each time: a body
// chunk of 64 KiB cost 37 us to encode and decode instead of 22.
var poolSizes = []uint8{8, 12, 14, 15, 16, 17, 18, 20}

// Process sets up the Go runtime and gRPC's buffers for this process. It must be
// called before the first server or client is made. The environment variables
// GOGC and GOMEMLIMIT have the last word.
func Process() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		pace()
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	pool, err := mem.NewBinaryTieredBufferPool(poolSizes...)
	if err != nil {
		return fmt.Errorf("buffers: %w", err)
	}
	experimental.SetDefaultBufferPool(pool)
	return nil
}

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
