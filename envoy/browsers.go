package envoy

import (
	"regexp"
	"strings"

	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"patchbay.dev/internal/mcp"
)

const corsFilter = "envoy.filters.http.cors"

// browsers lets the pages of the origins read what they get, wherever in the
// gateway it was made, and answers their preflight requests. It refuses nobody:
// requests of other origins go on, and are refused by who reads them.
func (b *routeBuilder) browsers(origins []string) anyMap {
	policy := &corsv3.CorsPolicy{
		AllowMethods:  mcp.CORSMethods,
		AllowHeaders:  mcp.CORSRequestHeaders,
		ExposeHeaders: mcp.CORSResponseHeaders,
		MaxAge:        mcp.CORSMaxAge,
	}
	for _, o := range origins {
		policy.AllowOriginStringMatch = append(policy.AllowOriginStringMatch, originMatcher(o))
	}
	packed, err := pack(policy)
	if err != nil && b.err == nil {
		b.err = err
	}
	return anyMap{corsFilter: packed}
}

func originMatcher(origin string) *matcherv3.StringMatcher {
	pattern := regexp.QuoteMeta(origin)
	host, anyPort := strings.CutSuffix(origin, ":*")
	switch {
	case origin == "*":
		pattern = ".*"
	case anyPort:
		pattern = regexp.QuoteMeta(host) + "(:[0-9]+)?"
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: pattern},
	}}
}
