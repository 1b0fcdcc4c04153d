package mcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAcceptsAnswers(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                    true,
		"*/*":                                 true,
		"application/json, text/event-stream": true,
		"text/event-stream,application/json":  true,
		"Application/JSON; q=0.9 , TEXT/event-stream;q=1": true,
		"application/*, text/*":                           true,
		"text/html, */*;q=0.1":                            true,
		"application/json;charset, text/event-stream":     true,
		"application/json":                                false,
		"text/event-stream":                               false,
		"text/html":                                       false,
		",":                                               false,
		"application/jsonx, text/event-stream":            false,
	} {
		assert.Equal(t, want, AcceptsAnswers(accept), "%q", accept)
	}
	assert.True(t, AcceptsEvents("application/json, text/event-stream"))
	assert.True(t, AcceptsEvents("text/event-stream"))
	assert.False(t, AcceptsEvents(""), "a GET of a browser's address bar is no stream")
	assert.False(t, AcceptsEvents("application/json"))
}

func TestIsJSON(t *testing.T) {
	for typ, want := range map[string]bool{
		"application/json":                  true,
		"application/json; charset=utf-8":   true,
		"Application/JSON":                  true,
		"application/json;charset":          true,
		"":                                  false,
		"text/plain":                        false,
		"application/x-www-form-urlencoded": false,
		"text/plain; a=application/json":    false,
		"application/json-patch+json":       false,
	} {
		assert.Equal(t, want, IsJSON(typ), "%q", typ)
	}
}
