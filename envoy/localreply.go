package envoy

import (
	"fmt"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
)

// The errors that Envoy gives by itself. The request's id is not known there.
var (
	notFoundBody = errorBody(mcp.CodeInvalidRequest, "nothing is served here: the MCP endpoint is "+Endpoint)
	// localErrors are by status; the last one is for all others.
	localErrors = []struct {
		status uint32
		body   string
	}{
		{400, errorBody(mcp.CodeInvalidRequest, "the HTTP request is malformed")},
		{403, errorBody(mcp.CodeInvalidRequest, "upgrades are not served: the MCP endpoint is "+Endpoint)},
		{404, notFoundBody},
		{408, errorBody(mcp.CodeInvalidRequest, "the request did not arrive in time")},
		{413, errorBody(mcp.CodeInvalidRequest, "the request body is too large")},
		{426, errorBody(mcp.CodeInvalidRequest, "HTTP/1.1 or newer is needed")},
		{431, errorBody(mcp.CodeInvalidRequest, "the request headers are too large or too many")},
		{0, errorBody(mcp.CodeInternal, "the gateway is not available; try again")},
	}
)

func errorBody(code int, message string) string {
	return string((&mcp.Error{Code: code, Message: message}).Body(nil))
}

// callError is the error of a direct call in Envoy's format language. The
// message is the inside of a JSON string with one %s, for the server's name.
func callError(code int, message string) string {
	id, server := metadataValue(private.KeyID), metadataValue(private.KeyServer)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"%s"}}`, id, code, fmt.Sprintf(message, server))
}

func metadataValue(key string) string {
	return "%DYNAMIC_METADATA(" + private.Namespace + ":" + key + ")%"
}

// foreign is true for a reply that Envoy made by itself: what ext_proc answers
// and the 404 of the routes say their content type.
const foreign = `!("content-type" in response.headers)`

// localReplies makes JSON-RPC errors of what Envoy answers by itself. The first
// mapper whose filter holds wins. Backends' answers never pass here.
func localReplies() (*hcmv3.LocalReplyConfig, error) {
	byEnvoy, err := celFilter(foreign)
	if err != nil {
		return nil, err
	}
	cfg := &hcmv3.LocalReplyConfig{}
	add := func(text string, filters ...*accesslogv3.AccessLogFilter) {
		cfg.Mappers = append(cfg.Mappers, &hcmv3.ResponseMapper{
			Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
				AndFilter: &accesslogv3.AndFilter{Filters: append(filters, byEnvoy)},
			}},
			BodyFormatOverride: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: text},
				}},
				ContentType: "application/json",
			},
		})
	}
	// A direct call that failed here. Its id is raw JSON, quotes included.
	timeouts := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"UT", "SI", "DT", "UMSDR"}},
	}}
	direct := hasMetadata(private.KeyID)
	add(callError(mcp.CodeTimeout, `Timeout: server \"%s\" did not answer in time`), direct, timeouts)
	add(callError(mcp.CodeUnavailable, `server \"%s\" is unavailable; the gateway keeps trying to reach it`), direct, statusFrom(400))
	for _, e := range localErrors {
		if e.status == 0 {
			add(e.body, statusFrom(400))
			continue
		}
		add(e.body, statusIs(e.status))
	}
	return cfg, nil
}

// hasMetadata holds where ext_proc left the key.
func hasMetadata(key string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_MetadataFilter{
		MetadataFilter: &accesslogv3.MetadataFilter{
			Matcher: &matcherv3.MetadataMatcher{
				Filter: private.Namespace,
				Path:   []*matcherv3.MetadataMatcher_PathSegment{{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}}},
				Value:  &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}},
			},
			MatchIfKeyNotFound: wrapperspb.Bool(false),
		},
	}}
}

func statusFrom(n uint32) *accesslogv3.AccessLogFilter {
	return statusFilter(accesslogv3.ComparisonFilter_GE, n)
}

func statusIs(n uint32) *accesslogv3.AccessLogFilter {
	return statusFilter(accesslogv3.ComparisonFilter_EQ, n)
}

func statusFilter(op accesslogv3.ComparisonFilter_Op, n uint32) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
		StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op: op,
			// The key is one of Envoy's runtime, by which an operator could
			// change the number; no such layer exists here.
			Value: &corev3.RuntimeUInt32{DefaultValue: n, RuntimeKey: "patchbay.local_reply"},
		}},
	}}
}

func celFilter(expression string) (*accesslogv3.AccessLogFilter, error) {
	c, err := pack(&celv3.ExpressionFilter{Expression: expression})
	if err != nil {
		return nil, err
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: c},
		},
	}}, nil
}
