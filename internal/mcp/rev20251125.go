package mcp

// rev20251125 is revision 2025-11-25: SSE streams start with a priming event and
// can be resumed by GET, icons and URL elicitation are new.
type rev20251125 struct{}

func (rev20251125) String() string      { return "2025-11-25" }
func (rev20251125) Ordinal() uint8      { return 3 }
func (rev20251125) Batches() bool       { return false }
func (rev20251125) VersionHeader() bool { return true }
func (rev20251125) PrimesStreams() bool { return true }
