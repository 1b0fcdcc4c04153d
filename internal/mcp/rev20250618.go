package mcp

// rev20250618 is revision 2025-06-18: batches are gone, MCP-Protocol-Version is
// required after initialize, elicitation and structured output are new.
type rev20250618 struct{}

func (rev20250618) String() string      { return "2025-06-18" }
func (rev20250618) Ordinal() uint8      { return 2 }
func (rev20250618) Batches() bool       { return false }
func (rev20250618) VersionHeader() bool { return true }
func (rev20250618) PrimesStreams() bool { return false }
