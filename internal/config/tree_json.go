package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// parseJSON reads one JSON value (RFC 8259) into a tree.
func parseJSON(data []byte) (*node, error) {
	r := &jsonReader{
		data: data,
		dec:  jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true)),
		at:   position{1, 1},
	}
	n, err := r.value(1)
	if err != nil {
		return nil, r.positioned(err)
	}
	end := r.next()
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &syntaxError{end, "expected the end of the file after the JSON value"}
	}
	return n, nil
}

// jsonReader walks the tokens of one document. It is used by one goroutine.
type jsonReader struct {
	data  []byte
	dec   *jsontext.Decoder
	nodes int
	// offset and at are a byte of data and its position; while the document is
	// read they only move forward, so that all positions take one pass.
	offset int
	at     position
}

// next returns the position of the token that comes next.
func (r *jsonReader) next() position {
	i := int(r.dec.InputOffset())
	for i < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[i]) >= 0 {
		i++
	}
	return r.seek(i)
}

func (r *jsonReader) seek(offset int) position {
	if offset < r.offset {
		r.offset, r.at = 0, position{1, 1}
	}
	for r.offset < min(offset, len(r.data)) {
		c, size := utf8.DecodeRune(r.data[r.offset:])
		if r.offset += size; c == '\n' {
			r.at = position{r.at.line + 1, 1}
		} else {
			r.at.column++
		}
	}
	return r.at
}

func (r *jsonReader) value(depth int) (*node, error) {
	n := &node{pos: r.next()}
	if depth > maxDepth {
		return nil, &syntaxError{n.pos, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	if r.nodes++; r.nodes > maxNodes {
		return nil, &syntaxError{n.pos, fmt.Sprintf("more than %d values", maxNodes)}
	}
	token, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case jsontext.KindBeginObject:
		n.kind = kindMap
		return n, r.object(n, depth)
	case jsontext.KindBeginArray:
		n.kind = kindList
		return n, r.array(n, depth)
	case jsontext.KindString:
		n.kind = kindString
	case jsontext.KindNumber:
		n.kind = kindNumber
	case jsontext.KindTrue, jsontext.KindFalse:
		n.kind = kindBool
	default:
		n.kind = kindNull
	}
	n.text = token.String()
	return n, nil
}

func (r *jsonReader) object(n *node, depth int) error {
	for r.dec.PeekKind() != jsontext.KindEndObject {
		pos := r.next()
		key, err := r.dec.ReadToken()
		if err != nil {
			return err
		}
		e := entry{key: key.String(), pos: pos}
		if e.value, err = r.value(depth + 1); err != nil {
			return err
		}
		n.entries = append(n.entries, e)
	}
	_, err := r.dec.ReadToken()
	return err
}

func (r *jsonReader) array(n *node, depth int) error {
	for r.dec.PeekKind() != jsontext.KindEndArray {
		v, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.list = append(n.list, v)
	}
	_, err := r.dec.ReadToken()
	return err
}

// positioned turns an error of the decoder into one with line and column.
func (r *jsonReader) positioned(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, new(*syntaxError)):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &syntaxError{r.seek(len(r.data)), "the file ends in the middle of a JSON value"}
	case errors.As(err, &syntax):
		return &syntaxError{r.seek(int(syntax.ByteOffset)), "not valid JSON: " + syntax.Err.Error()}
	default:
		return &syntaxError{r.next(), "not valid JSON: " + err.Error()}
	}
}
