package jsonrpc

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// errStop ends a walk early without being a fault.
var errStop = errors.New("jsonrpc: stop")

// Scan checks raw, one JSON-RPC message, and fills m, which it resets first. It
// does not keep or change raw, except that m.Raw is raw. The error is an
// [*Error], with [ErrBatch] in its chain for a batch; m is then incomplete.
func Scan(raw []byte, m *Message) error {
	*m = Message{Raw: raw}
	err := errSlow
	if len(raw) >= quickFrom {
		err = scanQuick(raw, m)
	}
	if errors.Is(err, errSlow) {
		*m = Message{Raw: raw}
		err = scan(raw, m)
	}
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok { // every error below is one
		e = parseError("not valid JSON")
		e.cause = err
	}
	switch {
	case e.Code == codeInvalid:
		e.ID = m.ID
	default:
		e.ID = findID(raw)
	}
	return e
}

// scanQuick is scan for long texts; errSlow means that scan must decide.
func scanQuick(raw []byte, m *Message) error {
	if tooDeep(raw) {
		return errSlow
	}
	d := newQuick(raw)
	defer d.free()
	if d.peek() != jsontext.KindBeginObject {
		return errSlow
	}
	return (&scanner{decoder: d, m: m}).message()
}

func scan(raw []byte, m *Message) error {
	if tooDeep(raw) {
		return errTooDeep()
	}
	d := newDecoder(raw)
	defer d.free()
	switch d.dec.PeekKind() {
	case jsontext.KindBeginObject:
		return (&scanner{decoder: d, m: m}).message()
	case jsontext.KindBeginArray:
		return d.refuse(&Error{
			Code: codeInvalid, cause: ErrBatch,
			Message: "Invalid Request: JSON-RPC batches are not supported by this revision of MCP; send each message by itself",
		})
	case jsontext.KindInvalid:
		if len(bytes.TrimSpace(raw)) == 0 {
			return parseError("the body is empty; a JSON-RPC message was expected")
		}
	}
	return d.refuse(invalid("a JSON-RPC message is a JSON object"))
}

// refuse returns e if the text is well-formed at all.
func (d *decoder) refuse(e *Error) error {
	if _, err := d.value(); err != nil {
		return err
	}
	if err := d.end(); err != nil {
		return err
	}
	return e
}

// scanner is one Scan of an object.
type scanner struct {
	*decoder
	m       *Message
	version bool   // jsonrpc is "2.0"
	fault   *Error // the first thing wrong with a well-formed text
}

// message reads the whole text even when something is wrong early on: a parse
// error goes first, and the id may stand behind the fault.
func (s *scanner) message() error {
	if _, err := s.object(s.member); err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	s.classify()
	if s.fault != nil {
		return s.fault
	}
	return nil
}

func (s *scanner) blame(message string) {
	if s.fault == nil {
		s.fault = invalid(message)
	}
}

// classify finds the kind, or blames.
func (s *scanner) classify() {
	m := s.m
	if !s.version {
		s.blame(`"jsonrpc" must be "2.0"`)
	}
	answers := m.Result.Present() || m.Error.Present()
	switch {
	case m.Method.Present() && answers:
		s.blame(`a message has either "method" or one of "result" and "error"`)
	case m.Method.Present() && m.ID.Present():
		m.Kind = Request
	case m.Method.Present():
		m.Kind = Notification
	case m.Result.Present() && m.Error.Present():
		s.blame(`a response has either "result" or "error", not both`)
	case answers && m.ID.Present():
		m.Kind = Response
	case answers:
		s.blame(`a response needs the "id" of its request`)
	default:
		s.blame(`a message needs "method", "result" or "error"`)
	}
}

// member reads one member of the message.
func (s *scanner) member(key Span) error {
	m := s.m
	name := s.name(key)
	if name == "params" && s.peek() == jsontext.KindBeginObject {
		var err error
		m.Params, err = s.object(s.param)
		return err
	}
	v, err := s.value()
	if err != nil {
		return err
	}
	switch name {
	case "jsonrpc":
		s.version = s.text(v).Value == "2.0"
	case "id":
		s.id(v)
	case "method":
		s.method(v)
	case "params":
		s.blame(`"params" must be an object`)
	case "result":
		m.Result = v
	case "error":
		m.Error = v
	}
	return nil
}

// param reads one member of params.
func (s *scanner) param(key Span) error {
	m := s.m
	name := s.name(key)
	if name == "_meta" && s.peek() == jsontext.KindBeginObject {
		var err error
		m.Meta, err = s.object(s.metaMember)
		return err
	}
	if name == "ref" && s.peek() == jsontext.KindBeginObject {
		_, err := s.object(s.refMember)
		return err
	}
	v, err := s.value()
	if err != nil {
		return err
	}
	switch name {
	case "name":
		m.Name = s.text(v)
	case "uri":
		m.URI = s.text(v)
	case "requestId":
		m.RequestID = s.scalar(v)
	case "cursor":
		if c := v.Of(s.raw); string(c) != "null" && string(c) != `""` {
			m.Cursor = v
		}
	}
	return nil
}

// metaMember reads one member of params._meta.
func (s *scanner) metaMember(key Span) error {
	v, err := s.value()
	if err == nil && s.name(key) == "progressToken" {
		s.m.ProgressToken = s.scalar(v)
	}
	return err
}

// refMember reads one member of params.ref.
func (s *scanner) refMember(key Span) error {
	v, err := s.value()
	if err != nil {
		return err
	}
	switch s.name(key) {
	case "type":
		s.m.RefType = s.text(v)
	case "name":
		s.m.RefName = s.text(v)
	case "uri":
		s.m.RefURI = s.text(v)
	}
	return nil
}

func (s *scanner) id(v Span) {
	if msg := checkID(v.Of(s.raw)); msg != "" {
		s.blame(msg)
		return
	}
	s.m.ID = v
}

func (s *scanner) method(v Span) {
	t := s.text(v)
	switch {
	case !t.Present():
		s.blame(`"method" must be a string`)
	case len(t.Value) > MaxMethod:
		s.blame(`"method" is longer than ` + strconv.Itoa(MaxMethod) + " bytes")
	}
	// Kept in either case: the kind does not depend on what is wrong with it.
	s.m.Method = Text{v, t.Value}
}

// text returns the string at v, or nothing when it is none.
func (s *scanner) text(v Span) Text {
	if s.raw[v.Start] != '"' {
		return Text{}
	}
	return Text{v, unquote(s.raw, v)}
}

// scalar returns v when it is a string or a number.
func (s *scanner) scalar(v Span) Span {
	if c := s.raw[v.Start]; c == '"' || c == '-' || '0' <= c && c <= '9' {
		return v
	}
	return Span{}
}

// name returns the decoded name at key if it is one that matters, else "".
func (s *scanner) name(key Span) string {
	inner := s.raw[key.Start+1 : key.End-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return known(inner)
	}
	return unquote(s.raw, key)
}

// checkID says what is wrong with a raw id, or nothing. MCP (schema.ts, type
// RequestId) has strings and integers; null, which JSON-RPC 2.0 tolerates, is
// excluded there.
func checkID(id []byte) string {
	if len(id) > MaxID {
		return `"id" is longer than ` + strconv.Itoa(MaxID) + " bytes"
	}
	const message = `"id" must be a string or an integer`
	switch c := id[0]; {
	case c == '"':
		return ""
	case c == '-' || '0' <= c && c <= '9':
		if bytes.ContainsAny(id, ".eE") {
			return message
		}
		return ""
	}
	return message
}

// findID looks for the id in a text that is not well-formed, as far as it can be
// read, so that the sender can tell which request was refused. An id that stands
// there twice, or that may have been cut off, is none.
func findID(raw []byte) (id Span) {
	d := newDecoder(raw, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer d.free()
	if d.dec.PeekKind() != jsontext.KindBeginObject {
		return Span{}
	}
	twice := false
	_, _ = d.object(func(key Span) error { // an error ends the search, no more
		v, err := d.value()
		if err != nil || unquote(raw, key) != "id" {
			return err
		}
		if twice = twice || id.Present(); twice || d.dec.PeekKind() == jsontext.KindInvalid {
			id = Span{}
			return errStop
		}
		id = v
		return nil
	})
	if b := id.Of(raw); b == nil || checkID(b) != "" || !utf8.Valid(b) {
		return Span{}
	}
	return id
}

// intern returns the string in b, without allocating when it is a known one.
func intern(b []byte) string {
	if s := known(b); s != "" {
		return s
	}
	return string(b)
}

// known returns b as a string if it is a word that Scan looks for or a method
// that arrives often, else "". Every way through it is free of allocation.
func known(b []byte) string {
	for _, w := range words[min(len(b), len(words)-1)] {
		if string(b) == w {
			return w
		}
	}
	return ""
}
