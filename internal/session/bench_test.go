package session

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkFind: a token that is not in memory, that must be opened, and one that
// is, with and without the look at its backend session.
func BenchmarkFind(b *testing.B) {
	table := NewTable(Options{})
	defer table.Close()
	_, adopted := table.New(Claims{Principal: "https://issuer.example|user-17"})
	s, inMemory := table.New(Claims{Principal: "https://issuer.example|user-17"})
	if _, err := s.OpenBackend(context.Background(), "weather", "e", nil, opener("1")); err != nil {
		b.Fatal(err)
	}
	find := func(b *testing.B, token string) *Session {
		s, err := table.Find(token, "https://issuer.example|user-17")
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	b.Run("adopted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			find(b, adopted)
		}
	})
	b.Run("memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			find(b, inMemory).Backend("weather", "e")
		}
	})
	b.Run("memory/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				find(b, inMemory).Backend("weather", "e")
			}
		})
	})
}

func BenchmarkNew(b *testing.B) {
	table := NewTable(Options{})
	defer table.Close()
	b.ReportAllocs()
	for b.Loop() {
		table.New(Claims{Principal: "https://issuer.example|user-17"})
	}
}

// BenchmarkMemory prints what an idle session with one backend session costs. The
// limit is 2 KB.
func BenchmarkMemory(b *testing.B) {
	const n = 50_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var perSession float64
	for range b.N {
		before := heap()
		table := NewTable(Options{IdleTimeout: time.Hour})
		for i := range n {
			_, token := table.New(Claims{Principal: fmt.Sprintf("https://issuer.example|user-%d", i)})
			s, err := table.Find(token, fmt.Sprintf("https://issuer.example|user-%d", i))
			if err != nil {
				b.Fatal(err)
			}
			open := func(context.Context) (*Backend, error) {
				return &Backend{
					ID: fmt.Sprintf("2f1c9c8e-5b0a-4b8e-9b7e-%012d", i), Epoch: "e",
					Revision: "2025-11-25", Address: fmt.Sprintf("10.0.0.%d:8080", i%256),
				}, nil
			}
			if _, err := s.OpenBackend(context.Background(), "weather", "e", nil, open); err != nil {
				b.Fatal(err)
			}
		}
		perSession = float64(heap()-before) / n
		table.Close()
		runtime.KeepAlive(table)
	}
	b.ReportMetric(perSession, "B/session")
}
