package mcp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"patchbay.dev/internal/mcp"
)

// A list is large: it is rendered with one allocation, without room to spare.
func TestResultIsMadeAtOnce(t *testing.T) {
	id, list := []byte("17"), bytes.Repeat([]byte("x"), 40<<10)
	var got []byte
	allocations := testing.AllocsPerRun(10, func() { got = mcp.Result(id, list) })
	assert.InDelta(t, 1, allocations, 0)
	assert.Equal(t, `{"jsonrpc":"2.0","id":17,"result":`+string(list)+`}`, string(got))
}
