package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Request is one request that the API server has completed.
type Request struct {
	// get, list, watch, create, update, patch, delete, deletecollection; for non-resource URIs the
	// lower-case HTTP method
	Verb             string
	User             string // authenticated user
	ImpersonatedUser string // "" without impersonation
	UserAgent        string
	Group, Version   string // of the resource
	Resource         string // plural, such as "configmaps"; "" for non-resource URIs
	Subresource      string // such as "status"
	Namespace, Name  string // "" if the resource has none, or for a list
	URI              string // with its query
	Code             int    // HTTP status
	Completed        time.Time
}

// String returns verb, target, user and status in one line, for messages.
func (r Request) String() string {
	target := r.URI
	if r.Resource != "" {
		target = r.Resource
		if r.Subresource != "" {
			target += "/" + r.Subresource
		}
		if r.Group != "" {
			target += "." + r.Group
		}
		if r.Namespace != "" {
			target += " in " + r.Namespace
		}
		if r.Name != "" {
			target += " named " + r.Name
		}
	}
	return fmt.Sprintf("%s %s by %s → %d", r.Verb, target, r.EffectiveUser(), r.Code)
}

// EffectiveUser returns the user whose permissions applied: the impersonated user, if any.
func (r Request) EffectiveUser() string { return cmp.Or(r.ImpersonatedUser, r.User) }

// RequestFilter returns true for the requests that it matches.
type RequestFilter func(Request) bool

// Requests are requests in the order of their completion.
type Requests []Request

// Meets returns true if a request matches all filters.
func (r Request) Meets(filters ...RequestFilter) bool {
	return !slices.ContainsFunc(filters, func(f RequestFilter) bool { return !f(r) })
}

// Where returns the requests that match all filters.
func (rs Requests) Where(filters ...RequestFilter) Requests {
	return slices.DeleteFunc(slices.Clone(rs), func(r Request) bool { return !r.Meets(filters...) })
}

// Without returns the requests that match none of the filters.
func (rs Requests) Without(filters ...RequestFilter) Requests {
	return slices.DeleteFunc(slices.Clone(rs), func(r Request) bool {
		return slices.ContainsFunc(filters, func(f RequestFilter) bool { return f(r) })
	})
}

// String counts equal requests, one per line, most frequent first, for messages of assertions about
// their number.
func (rs Requests) String() string {
	counts := map[string]int{}
	for _, r := range rs {
		counts[r.String()]++
	}
	lines := make([]string, 0, len(counts))
	for kind, n := range counts {
		lines = append(lines, fmt.Sprintf("%6d × %s", n, kind))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(b, a) })
	return fmt.Sprintf("%d requests\n%s", len(rs), strings.Join(lines, "\n"))
}

// ByUser matches requests of an authenticated user, with or without impersonation.
func ByUser(user string) RequestFilter { return func(r Request) bool { return r.User == user } }

// ByEffectiveUser matches requests that were authorized as a user.
func ByEffectiveUser(user string) RequestFilter {
	return func(r Request) bool { return r.EffectiveUser() == user }
}

// ByUserAgent matches requests whose user agent begins with prefix.
func ByUserAgent(prefix string) RequestFilter {
	return func(r Request) bool { return strings.HasPrefix(r.UserAgent, prefix) }
}

// Verb matches requests with one of the verbs.
func Verb(verbs ...string) RequestFilter {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// Resource matches requests for a resource, such as "configmaps" or "deployments/status".
// "deployments" excludes subresources; "deployments/*" includes them.
func Resource(name string) RequestFilter {
	resource, sub, _ := strings.Cut(name, "/")
	return func(r Request) bool { return r.Resource == resource && (sub == "*" || r.Subresource == sub) }
}

// InNamespace matches requests in a namespace.
func InNamespace(namespace string) RequestFilter {
	return func(r Request) bool { return r.Namespace == namespace }
}

// Named matches requests for objects with a name.
func Named(name string) RequestFilter { return func(r Request) bool { return r.Name == name } }

// Write matches requests with a write verb, including dry runs.
func Write(r Request) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// DryRun matches dry runs.
func DryRun(r Request) bool { return strings.Contains(r.URI, "dryRun=") }

// Watch matches watches that ended.
func Watch(r Request) bool { return r.Verb == "watch" }

// Lease matches requests for leases: leader election, and heartbeats of nodes.
func Lease(r Request) bool { return r.Resource == "leases" }

// Discovery matches requests without a resource, whose time the clients choose: API groups,
// OpenAPI, version and health.
func Discovery(r Request) bool { return r.Resource == "" }

// Failed matches requests with a status of 400 or more.
func Failed(r Request) bool { return r.Code >= 400 }
