package mcp

// rev20250326 is revision 2025-03-26: the first with the streamable HTTP
// transport, the only one with JSON-RPC batches, and without a version header.
type rev20250326 struct{}

func (rev20250326) String() string      { return "2025-03-26" }
func (rev20250326) Ordinal() uint8      { return 1 }
func (rev20250326) Batches() bool       { return true }
func (rev20250326) VersionHeader() bool { return false }
func (rev20250326) PrimesStreams() bool { return false }
