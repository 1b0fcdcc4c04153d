package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxIndent is the column up to which a line of YAML may be indented, and
// maxAnchors how many `&name` a file may have. The parser takes quadratic time
// in the depth of a document (seen: 10,000 open brackets take 2.6 s), so that
// both are checked on the tokens, before it runs.
const (
	maxIndent  = 2 * maxDepth
	maxAnchors = 100
)

// parseYAML reads one YAML document (1.2) into a tree. Aliases share the node of
// their anchor, so that an "alias bomb" stays as small as its text. Tags, merge
// keys, complex keys and several documents are refused.
func parseYAML(data []byte) (*node, error) {
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlError(err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, &syntaxError{yamlPosition(doc.Body), "expected one YAML document, found a second one"}
		}
		body = doc.Body
	}
	if body == nil {
		return &node{kind: kindNull, pos: position{1, 1}}, nil
	}
	r := yamlReader{anchors: map[string]*node{}}
	return r.value(body, 1)
}

// checkTokens bounds what the parser is given.
func checkTokens(tokens token.Tokens) error {
	if len(tokens) > maxNodes {
		return &syntaxError{tokenPosition(tokens[maxNodes]), fmt.Sprintf("more than %d tokens", maxNodes)}
	}
	flow, anchors, line := 0, 0, 0
	for _, t := range tokens {
		pos := tokenPosition(t)
		first := pos.line != line
		line = pos.line
		switch t.Type {
		case token.InvalidType:
			return &syntaxError{pos, "not valid YAML: " + firstLine(t.Error)}
		case token.CommentType:
			continue
		case token.TagType:
			return &syntaxError{pos, "YAML tags (!name) are not supported"}
		case token.AnchorType:
			anchors++
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType:
			first = true // these nest without a new line: "- - - a"
		}
		if flow > maxDepth || (flow <= 0 && first && pos.column > maxIndent) {
			return &syntaxError{pos, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
		if anchors > maxAnchors {
			return &syntaxError{pos, fmt.Sprintf("more than %d anchors", maxAnchors)}
		}
	}
	return nil
}

// yamlReader turns the parser's tree into ours. It is used by one goroutine.
type yamlReader struct {
	anchors map[string]*node // complete nodes only, so no alias can be inside itself
}

func (r yamlReader) value(n ast.Node, depth int) (*node, error) {
	if n == nil {
		return &node{kind: kindNull}, nil
	}
	out := &node{pos: yamlPosition(n)}
	if depth > maxDepth {
		return nil, &syntaxError{out.pos, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(out, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(out, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out.kind = kindList
		for _, v := range n.Values {
			item, err := r.value(v, depth+1)
			if err != nil {
				return nil, err
			}
			out.list = append(out.list, item)
		}
		return out, nil
	case *ast.AnchorNode:
		v, err := r.value(n.Value, depth)
		if err == nil {
			r.anchors[n.Name.GetToken().Value] = v
		}
		return v, err
	case *ast.AliasNode:
		if v, ok := r.anchors[n.Value.GetToken().Value]; ok {
			return v, nil
		}
		return nil, &syntaxError{out.pos, "this alias (*name) has no anchor (&name) before it"}
	default:
		return scalar(out, n)
	}
}

func (r yamlReader) mapping(out *node, values []*ast.MappingValueNode, depth int) (*node, error) {
	out.kind = kindMap
	for _, v := range values {
		pos := yamlPosition(v.Key)
		switch v.Key.(type) {
		case *ast.MergeKeyNode:
			return nil, &syntaxError{pos, "YAML merge keys (<<) are not supported: write the keys out"}
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		default:
			return nil, &syntaxError{pos, "expected a plain key"}
		}
		value, err := r.value(v.Value, depth+1)
		if err != nil {
			return nil, err
		}
		out.entries = append(out.entries, entry{key: v.Key.GetToken().Value, pos: pos, value: value})
	}
	return out, nil
}

func scalar(out *node, n ast.Node) (*node, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		out.kind, out.text = kindString, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindString, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = kindNumber, n.GetToken().Value
	case *ast.BoolNode:
		out.kind, out.text = kindBool, n.GetToken().Value
	case *ast.NullNode:
		out.kind = kindNull
	default:
		return nil, &syntaxError{out.pos, fmt.Sprintf("a YAML %s is not supported here", strings.ToLower(n.Type().String()))}
	}
	return out, nil
}

// yamlPosition is where a node begins: of a block mapping that is its first
// key, of which the parser only keeps the colon.
func yamlPosition(n ast.Node) position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return yamlPosition(n.Values[0].Key)
		}
		return tokenPosition(n.Start)
	case *ast.MappingValueNode:
		return yamlPosition(n.Key)
	default:
		return tokenPosition(n.GetToken())
	}
}

func tokenPosition(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{1, 1}
	}
	return position{t.Position.Line, t.Position.Column}
}

// yamlError keeps the message and the place of a parser's error, without the
// piece of the file that it prints (which may hold a secret).
func yamlError(err error) error {
	var e yaml.Error
	if errors.As(err, &e) {
		return &syntaxError{tokenPosition(e.GetToken()), "not valid YAML: " + firstLine(e.GetMessage())}
	}
	return &syntaxError{position{1, 1}, "not valid YAML: " + firstLine(err.Error())}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
