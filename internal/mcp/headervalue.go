package mcp

import (
	"encoding/base64"
	"strings"
)

// The markers of an encoded header value (2026-07-28, Transports, "Value
// Encoding").
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// EncodeHeaderValue renders v for the headers Mcp-Name and Mcp-Param-*: as it
// is where HTTP allows it, else as base64 of its UTF-8 between markers. A value
// that looks like an encoded one is encoded too.
func EncodeHeaderValue(v string) string {
	plain := v == strings.TrimSpace(v) && !strings.HasPrefix(v, encodedPrefix)
	for i := range len(v) {
		plain = plain && v[i] >= ' ' && v[i] < 0x7f
	}
	if plain {
		return v
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(v)) + encodedSuffix
}
