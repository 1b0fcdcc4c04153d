package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"patchbay.dev/internal/sse"
)

type got struct{ raw, name, id, data string }

func readAll(t *testing.T, r io.Reader, limit int) ([]got, error) {
	t.Helper()
	var out []got
	rd := sse.NewReader(r, limit)
	for {
		e, err := rd.Next()
		if err != nil {
			return out, err
		}
		out = append(out, got{string(e.Raw), e.Name, e.ID, string(e.Data)})
	}
}

func TestEventsKeepTheirBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []got
	}{
		"data":       {"data: a\n\n", []got{{"data: a\n\n", "", "", "a"}}},
		"no space":   {"data:a\ndata:b\n\n", []got{{"data:a\ndata:b\n\n", "", "", "a\nb"}}},
		"fields":     {"event: message\nid: 7\ndata: {}\n\n", []got{{"event: message\nid: 7\ndata: {}\n\n", "message", "7", "{}"}}},
		"CR LF":      {"data: a\r\n\r\ndata: b\r\n\r\n", []got{{"data: a\r\n\r\n", "", "", "a"}, {"data: b\r\n\r\n", "", "", "b"}}},
		"CR alone":   {"data: a\r\rdata: b\r\r", []got{{"data: a\r\r", "", "", "a"}, {"data: b\r\r", "", "", "b"}}},
		"comment":    {": hi\n\ndata: a\n\n", []got{{": hi\n\n", "", "", ""}, {"data: a\n\n", "", "", "a"}}},
		"primer":     {"id: 1\ndata:\n\n", []got{{"id: 1\ndata:\n\n", "", "1", ""}}},
		"id with 0":  {"id: a\x00b\ndata: x\n\n", []got{{"id: a\x00b\ndata: x\n\n", "", "", "x"}}},
		"long lines": {"data: " + strings.Repeat("x", 9000) + "\n\n", []got{{"data: " + strings.Repeat("x", 9000) + "\n\n", "", "", strings.Repeat("x", 9000)}}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":    strings.NewReader(tc.in),
				"one byte": iotest.OneByteReader(strings.NewReader("data: 0\r\n\r\n" + tc.in)),
			} {
				all, err := readAll(t, r, 1<<20)
				require.ErrorIs(t, err, io.EOF, how)
				if how == "one byte" { // CR LF was learnt from the event put in front
					require.NotEmpty(t, all)
					all = all[1:]
				}
				assert.Equal(t, tc.want, all, how)
			}
		})
	}
}

func TestByteOrderMarkIsNoData(t *testing.T) {
	all, err := readAll(t, strings.NewReader("\xef\xbb\xbfdata: a\n\n"), 1<<20)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, []got{{"\xef\xbb\xbfdata: a\n\n", "", "", "a"}}, all)
}

func TestCutOffEventIsTold(t *testing.T) {
	all, err := readAll(t, strings.NewReader("data: a\n\ndata: b\n"), 1<<20)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Len(t, all, 1)
}

func TestEventOverTheLimit(t *testing.T) {
	_, err := readAll(t, strings.NewReader("data: "+strings.Repeat("x", 100)+"\n\n"), 64)
	require.ErrorIs(t, err, sse.ErrTooLarge)
	_, err = readAll(t, strings.NewReader(strings.Repeat("data: x\n", 100)+"\n"), 64)
	require.ErrorIs(t, err, sse.ErrTooLarge)
}

// FuzzReader: however the bytes arrive, the events are the same and the raw
// bytes together are the stream.
func FuzzReader(f *testing.F) {
	f.Add([]byte("id: 1\r\ndata: a\r\n\r\n: c\n\ndata: b\rdata: c\r\r"))
	f.Add([]byte("\xef\xbb\xbfevent: x\ndata\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		type ev struct{ raw, name, id, data string }
		read := func(r io.Reader) (evs []ev, raw []byte) {
			rd := sse.NewReader(r, 1<<20)
			for {
				e, err := rd.Next()
				raw = append(raw, e.Raw...)
				if err != nil {
					if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Fatal(err)
					}
					return evs, raw
				}
				evs = append(evs, ev{"", e.Name, e.ID, string(e.Data)})
			}
		}
		whole, raw := read(bytes.NewReader(in))
		slow, _ := read(iotest.OneByteReader(bytes.NewReader(in)))
		if !bytes.Equal(raw, in) {
			t.Fatalf("raw %q of %q", raw, in)
		}
		if len(whole) != len(slow) {
			t.Fatalf("%d events at once, %d byte by byte", len(whole), len(slow))
		}
		for i := range whole {
			if whole[i] != slow[i] {
				t.Fatalf("event %d: %+v, byte by byte %+v", i, whole[i], slow[i])
			}
		}
	})
}
