package extproc

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // also registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec makes a gRPC server read and write this package's messages without the
// protobuf structs: of a request's twenty headers eight matter, and a body of
// 64 KiB would be copied twice on its way in and twice on its way out. All other
// messages of that server are coded as always. A server that [Server] is
// registered at needs this option.
func Codec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if out, ok := v.(outgoing); ok {
		return mem.BufferSlice(out), nil
	}
	return c.CodecV2.Marshal(v) //nolint:wrapcheck // as it is
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		return in.unmarshal(data)
	}
	return c.CodecV2.Unmarshal(data, v) //nolint:wrapcheck // as it is
}

// The fields of ProcessingRequest that say what it is
// (envoy/service/ext_proc/v3/external_processor.proto).
const (
	requestHeaders  protowire.Number = 2
	requestBody     protowire.Number = 4
	requestTrailers protowire.Number = 6
)

// incoming is a ProcessingRequest, as far as it matters here.
type incoming struct {
	// header takes each header; its arguments are only lent.
	header func(key, value []byte)

	kind protowire.Number // requestHeaders, ..., or of another message; 0 for none
	body []byte           // the chunk, in memory of its own
	end  bool             // end_of_stream
}

// unmarshal reads the message. data is only lent; a large one is copied once.
func (in *incoming) unmarshal(data mem.BufferSlice) error {
	in.kind, in.body, in.end = 0, nil, false
	var raw []byte
	own := len(data) != 1
	if own {
		raw = data.Materialize()
	} else {
		raw = data[0].ReadOnlyData()
	}
	return fields(raw, func(num protowire.Number, v []byte, _ uint64) error {
		switch num {
		case requestHeaders:
			in.kind = num
			return in.headers(v)
		case requestBody:
			in.kind = num
			return in.chunk(v, own)
		case 3, 5, requestTrailers, 7: // the others of the oneof
			in.kind = num
		}
		return nil
	})
}

// headers reads an HttpHeaders: headers 1, end_of_stream 3.
func (in *incoming) headers(raw []byte) error {
	return fields(raw, func(num protowire.Number, v []byte, n uint64) error {
		switch num {
		case 1: // HeaderMap: headers 1
			return fields(v, func(num protowire.Number, v []byte, _ uint64) error {
				if num != 1 {
					return nil
				}
				return in.headerValue(v)
			})
		case 3:
			in.end = n != 0
		}
		return nil
	})
}

// headerValue reads a HeaderValue: key 1, value 2, raw_value 3. Envoy sends
// raw_value.
func (in *incoming) headerValue(raw []byte) error {
	var key, value []byte
	err := fields(raw, func(num protowire.Number, v []byte, _ uint64) error {
		switch num {
		case 1:
			key = v
		case 2, 3:
			if len(v) > 0 {
				value = v
			}
		}
		return nil
	})
	if err == nil {
		in.header(key, value)
	}
	return err
}

// chunk reads an HttpBody: body 1, end_of_stream 2.
func (in *incoming) chunk(raw []byte, own bool) error {
	return fields(raw, func(num protowire.Number, v []byte, n uint64) error {
		switch num {
		case 1:
			if !own {
				v = bytes.Clone(v)
			}
			in.body = v[:len(v):len(v)]
		case 2:
			in.end = n != 0
		}
		return nil
	})
}

var errWire = errors.New("a message from Envoy is not well-formed")

// fields calls f for each field of a message: with the content of one that is
// length-delimited, or with the number of a varint.
func fields(raw []byte, f func(num protowire.Number, v []byte, n uint64) error) error {
	for len(raw) > 0 {
		num, typ, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(size))
		}
		raw = raw[size:]
		var v []byte
		var n uint64
		switch typ {
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(raw)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(raw)
		default:
			size = protowire.ConsumeFieldValue(num, typ, raw)
		}
		if size < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(size))
		}
		raw = raw[size:]
		if err := f(num, v, n); err != nil {
			return err
		}
	}
	return nil
}

// outgoing is an encoded ProcessingResponse. gRPC writes it later: its memory must
// not change any more.
type outgoing mem.BufferSlice

// message appends a field that is a message: what fill appends, behind its length.
func message(b []byte, num protowire.Number, fill func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	start := len(b)
	b = fill(append(b, 0)) // most are shorter than 128 bytes
	n := len(b) - start - 1
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[start+1+more:], b[start+1:start+1+n])
	}
	protowire.AppendVarint(b[:start], uint64(n))
	return b
}

func text(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func number(b []byte, num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
}

// setHeader appends a field of a HeaderMutation: set_headers 1, a
// HeaderValueOption (header 1, append_action 3) with a HeaderValue (key 1,
// raw_value 3).
func setHeader(b []byte, name, value string) []byte {
	const overwriteOrAdd = 2
	return message(b, 1, func(b []byte) []byte {
		b = message(b, 1, func(b []byte) []byte { return text(text(b, 1, name), 3, value) })
		return number(b, 3, overwriteOrAdd)
	})
}

// structString appends a field of a google.protobuf.Struct: fields 1, a map of
// Value (string_value 3).
func structString(b []byte, name, value string) []byte {
	return structField(b, name, func(b []byte) []byte { return text(b, 3, value) })
}

func structField(b []byte, name string, value func([]byte) []byte) []byte {
	return message(b, 1, func(b []byte) []byte { return message(text(b, 1, name), 2, value) })
}

// bodyResponse encodes the answer to the body: request_body 3 of a
// ProcessingResponse, with response 1, body_mutation 3, streamed_response 3, and
// its body 1 and end_of_stream 2. The chunk itself is not copied.
func bodyResponse(chunk []byte, end bool) outgoing {
	const depth = 4
	var sizes [depth]int // from the innermost
	size := 2 + protowire.SizeTag(1) + protowire.SizeBytes(len(chunk))
	for i := range sizes {
		sizes[i] = size
		size = 1 + protowire.SizeBytes(size)
	}
	b := make([]byte, 0, 32)
	for i, num := range [depth]protowire.Number{3, 1, 3, 3} {
		b = protowire.AppendTag(b, num, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizes[depth-1-i])) //nolint:gosec // a length
	}
	b = number(b, 2, protowire.EncodeBool(end))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(chunk)))
	return outgoing{mem.SliceBuffer(b), mem.SliceBuffer(chunk)}
}

// immediate encodes immediate_response 7: status 1 (code 1), headers 2, body 3.
// The body's parts are not copied.
func immediate(code int, parts [][]byte) outgoing {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	head := message(make([]byte, 0, 64), 1, func(b []byte) []byte { return number(b, 1, uint64(code)) }) //nolint:gosec // an HTTP status
	head = message(head, 2, func(b []byte) []byte { return setHeader(b, "content-type", "application/json") })
	head = protowire.AppendTag(head, 3, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(n)) //nolint:gosec // a length
	b := protowire.AppendTag(make([]byte, 0, 96), 7, protowire.BytesType)
	b = append(protowire.AppendVarint(b, uint64(len(head)+n)), head...) //nolint:gosec // a length
	out := append(make(outgoing, 0, 1+len(parts)), mem.SliceBuffer(b))
	for _, p := range parts {
		out = append(out, mem.SliceBuffer(p))
	}
	return out
}
