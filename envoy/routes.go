package envoy

import (
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"patchbay.dev/internal/mcp"
	"patchbay.dev/internal/private"
)

// Endpoint is the path where clients speak MCP. Nothing else is served.
const Endpoint = "/mcp"

const extProcFilter = "envoy.filters.http.ext_proc"

// streamIdle ends a stream on which nothing was sent in either direction for
// that long. The broker's comments come much more often.
const streamIdle = 300 * time.Second

// RouteOptions are the parameters of Routes.
type RouteOptions struct {
	// BodyLimit is the largest request body in bytes. Up to it a body is kept
	// for the retry at the broker.
	BodyLimit int64
	// Origins are the web origins whose pages may speak to the endpoint, in the
	// form of config.Config.Origins.
	Origins []string
}

// lostRoutes are the direct routes: how a server tells that it does not know a
// session decides which of its answers are retried at the broker. The one
// without a value comes last and takes what no other took.
var lostRoutes = [...]struct {
	value    string // of private.HeaderLost
	statuses []uint32
}{
	{"400", []uint32{400, 404}},
	{"0", nil},
	{"", []uint32{404}},
}

// recoveredStatuses are retried at the broker whatever the server is like: the
// gateway holds the credential that a 401 asks for, and a redirect may lead to
// anywhere, with that credential.
var recoveredStatuses = [...]uint32{300, 301, 302, 303, 304, 305, 307, 308, 401}

// backendResponseHeaders are those of a backend that would speak to Envoy. No
// client gets them, nor what package mcp names.
var backendResponseHeaders = []string{
	"x-envoy-degraded", "x-envoy-immediate-health-check-fail", "x-envoy-ratelimited", "x-envoy-overloaded",
}

// gatewayRequestHeaders are what Envoy or ext_proc put on a request for the
// gateway's own use. No backend gets them. The client's private headers are
// not among them: ext_proc removes those, and may set a server's own in the
// same answer.
var gatewayRequestHeaders = []string{
	private.HeaderCluster, private.HeaderLost,
	"x-forwarded-for", "x-forwarded-proto", "x-envoy-internal", "x-envoy-external-address",
}

// Routes returns the gateway's routes. Every request is matched twice: first as
// the client sent it (which leads to the broker, or to a 404), and again when
// ext_proc has set private.HeaderCluster, which leads to a backend. Where ext_proc
// does not run nothing leads to a backend.
func Routes(opt RouteOptions) (*routev3.RouteConfiguration, error) {
	b := routeBuilder{limit: wrapperspb.UInt64(uint64(max(opt.BodyLimit, 0)))}
	var routes []*routev3.Route
	for _, r := range lostRoutes {
		routes = append(routes, b.direct(r.value, r.statuses))
	}
	routes = append(routes, b.stream(), b.brokerSession(), b.broker(), b.notFound())
	browsers := b.browsers(opt.Origins)
	rc := &routev3.RouteConfiguration{
		Name: private.RouteConfig,
		VirtualHosts: []*routev3.VirtualHost{{
			Name: "mcp", Domains: []string{"*"}, Routes: routes, TypedPerFilterConfig: browsers,
		}},
		// Clusters come over CDS, and a direct route names none.
		ValidateClusters: wrapperspb.Bool(false),
	}
	if b.err != nil {
		return nil, fmt.Errorf("routes: %w", b.err)
	}
	if err := rc.ValidateAll(); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return rc, nil
}

// routeBuilder keeps the first error, so that routes read as what they are.
type routeBuilder struct {
	limit *wrapperspb.UInt64Value
	err   error
}

// direct is the second match of a call that goes to its backend. ext_proc has
// written the backend's path and authority by then.
func (b *routeBuilder) direct(lost string, statuses []uint32) *routev3.Route {
	match := &routev3.RouteMatch{
		PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"},
		Headers: []*routev3.HeaderMatcher{{
			Name:                 private.HeaderCluster,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true},
		}},
	}
	name := "direct"
	if lost != "" {
		name += "-" + lost
		match.Headers = append(match.Headers, exactHeader(private.HeaderLost, lost))
	}
	return &routev3.Route{
		Name:                    name,
		Match:                   match,
		RequestHeadersToRemove:  gatewayRequestHeaders,
		ResponseHeadersToRemove: slices.Concat(mcp.PrivateResponseHeaders, mcp.OriginResponseHeaders, backendResponseHeaders),
		RequestBodyBufferLimit:  b.limit,
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier:            &routev3.RouteAction_ClusterHeader{ClusterHeader: private.HeaderCluster},
			ClusterNotFoundResponseCode: routev3.RouteAction_SERVICE_UNAVAILABLE,
			// ext_proc bounds the single call by x-envoy-upstream-rq-timeout-ms.
			Timeout:     durationpb.New(0),
			IdleTimeout: durationpb.New(streamIdle),
			RetryPolicy: b.retry(statuses),
		}},
	}
}

// retry sends a call to the broker (the second of its composite cluster) when
// nothing of it reached the backend, or when the backend refused it with one of
// the statuses before doing anything.
func (b *routeBuilder) retry(statuses []uint32) *routev3.RetryPolicy {
	statuses = slices.Concat(statuses, recoveredStatuses[:])
	slices.Sort(statuses)
	return &routev3.RetryPolicy{
		RetryOn:              "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
		RetriableStatusCodes: statuses,
		NumRetries:           wrapperspb.UInt32(1),
		// The broker is another machine than the one that failed: no waiting.
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(time.Millisecond), MaxInterval: durationpb.New(time.Millisecond),
		},
	}
}

// stream is everything but POST: streams, DELETE, and methods that the broker
// refuses. ext_proc would only cost.
func (b *routeBuilder) stream() *routev3.Route {
	notPost := exactHeader(":method", "POST")
	notPost.InvertMatch = true
	r := b.toBroker("stream")
	r.Match.Headers = []*routev3.HeaderMatcher{notPost}
	r.TypedPerFilterConfig = b.withoutExtProc()
	return r
}

// brokerSession is every POST of a session that ext_proc would only send on to
// the broker. A client that puts the mark before another id has an id that
// nobody knows.
func (b *routeBuilder) brokerSession() *routev3.Route {
	r := b.toBroker("broker-session")
	r.Match.Headers = []*routev3.HeaderMatcher{{
		Name: mcp.HeaderSessionID,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: private.BrokerSession},
		}},
	}}
	r.TypedPerFilterConfig = b.withoutExtProc()
	return r
}

// broker is the first match of every other POST, and its way unless ext_proc changes
// it.
func (b *routeBuilder) broker() *routev3.Route { return b.toBroker("broker") }

func (b *routeBuilder) toBroker(name string) *routev3.Route {
	return &routev3.Route{
		Name:                   name,
		Match:                  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: Endpoint}},
		RequestBodyBufferLimit: b.limit,
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: private.ClusterBroker},
			Timeout:          durationpb.New(0),
			IdleTimeout:      durationpb.New(streamIdle),
			// A connection that the broker was just closing; nothing was sent.
			RetryPolicy: &routev3.RetryPolicy{
				RetryOn: "connect-failure,refused-stream,reset-before-request", NumRetries: wrapperspb.UInt32(1),
			},
		}},
	}
}

// notFound answers every other path at once: clients probe well-known paths and
// wait for the answer before they begin.
func (b *routeBuilder) notFound() *routev3.Route {
	return &routev3.Route{
		Name:                 "not-found",
		Match:                &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		TypedPerFilterConfig: b.withoutExtProc(),
		ResponseHeadersToAdd: []*corev3.HeaderValueOption{{
			Header:       &corev3.HeaderValue{Key: "content-type", Value: "application/json"},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
			Status: 404,
			Body:   &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: notFoundBody}},
		}},
	}
}

func (b *routeBuilder) withoutExtProc() anyMap {
	off, err := pack(&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})
	if err != nil && b.err == nil {
		b.err = err
	}
	return anyMap{extProcFilter: off}
}

func exactHeader(name, value string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value},
		}},
	}
}
