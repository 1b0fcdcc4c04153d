package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Batch returns where the members of a batch stand in raw, at least one and at
// most limit of them (JSON-RPC 2.0, section 6). Whether each is a message is for
// [Scan] to say. The error is an [*Error].
func Batch(raw []byte, limit int) ([]Span, error) {
	if tooDeep(raw) {
		return nil, errTooDeep()
	}
	d := newDecoder(raw)
	defer d.free()
	if d.dec.PeekKind() != jsontext.KindBeginArray {
		return nil, invalid("a batch is a JSON array")
	}
	if _, err := d.token(); err != nil {
		return nil, err
	}
	var members []Span
	for d.dec.PeekKind() != jsontext.KindEndArray {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		if len(members) == limit {
			return nil, invalid("a batch has at most " + strconv.Itoa(limit) + " messages here; send several batches")
		}
		members = append(members, v)
	}
	if _, err := d.token(); err != nil {
		return nil, err
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, invalid("the batch is empty")
	}
	return members, nil
}
