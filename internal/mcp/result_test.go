package mcp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"patchbay.dev/internal/mcp"
)

// A list is large: an answer shares it.
func TestResultSharesTheList(t *testing.T) {
	id, list := []byte("17"), bytes.Repeat([]byte("x"), 40<<10)
	parts := mcp.ResultParts(id, list)
	want := `{"jsonrpc":"2.0","id":17,"result":` + string(list) + `}`
	assert.Equal(t, want, string(bytes.Join(parts, nil)))
	assert.Equal(t, want, string(mcp.Result(id, list)))
	assert.Same(t, &list[0], &parts[1][0])
}
