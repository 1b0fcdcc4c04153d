package mcp

// The methods of the session era (schema.ts of revision 2025-11-25) that the
// gateway knows by name.
const (
	MethodInitialize        = "initialize"
	MethodPing              = "ping"
	MethodToolsList         = "tools/list"
	MethodToolsCall         = "tools/call"
	MethodPromptsList       = "prompts/list"
	MethodPromptsGet        = "prompts/get"
	MethodResourcesList     = "resources/list"
	MethodResourcesRead     = "resources/read"
	MethodTemplatesList     = "resources/templates/list"
	MethodSubscribe         = "resources/subscribe"
	MethodUnsubscribe       = "resources/unsubscribe"
	MethodComplete          = "completion/complete"
	MethodSetLevel          = "logging/setLevel"
	MethodDiscover          = "server/discover"
	NotificationInitialized = "notifications/initialized"
	NotificationCancelled   = "notifications/cancelled"
	NotificationProgress    = "notifications/progress"
	NotificationRoots       = "notifications/roots/list_changed"
	NotificationTools       = "notifications/tools/list_changed"
	NotificationPrompts     = "notifications/prompts/list_changed"
	NotificationResources   = "notifications/resources/list_changed"
	NotificationUpdated     = "notifications/resources/updated"
	NotificationMessage     = "notifications/message"
	// MethodOther is the metric label of every method not named here: labels
	// must not grow with what strangers send.
	MethodOther = "other"
	// MethodResponse is the metric label of a response that a client POSTs.
	MethodResponse = "response"
	// MethodBatch is the metric label of a batch that is refused as a whole;
	// the messages of one that is served count as what they are.
	MethodBatch = "batch"
)

// MethodLabel returns method when the gateway knows it and MethodOther when
// not, so that it can label a metric. It does not allocate.
func MethodLabel(method string) string {
	switch method {
	case MethodInitialize, MethodPing, MethodToolsList, MethodToolsCall,
		MethodPromptsList, MethodPromptsGet, MethodResourcesList,
		MethodResourcesRead, MethodTemplatesList, MethodSubscribe,
		MethodUnsubscribe, MethodComplete, MethodSetLevel, MethodDiscover,
		NotificationInitialized, NotificationCancelled, NotificationProgress,
		NotificationRoots, NotificationTools, NotificationPrompts,
		NotificationResources, NotificationUpdated, NotificationMessage:
		return method
	}
	return MethodOther
}
