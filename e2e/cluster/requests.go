package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Request is one request that the API server has answered.
type Request struct {
	Verb             string // get, list, watch, create, update, patch, delete, deletecollection; of other URIs the HTTP method in lower case
	User             string // who was authenticated
	ImpersonatedUser string // as whom it was made, "" if as User
	UserAgent        string
	Group, Version   string // of the resource
	Resource         string // plural, such as "configmaps"; "" for other URIs
	Subresource      string // such as "status"
	Namespace, Name  string // "" where there is none, or a list was asked for
	URI              string // with its query
	Code             int    // HTTP status
	Answered         time.Time
}

// String is a short form for messages: who did what to what, with the status.
func (r Request) String() string { return fmt.Sprintf("%s → %d", r.kind(), r.Code) }

// kind is what requests have in common that a reader would count together.
func (r Request) kind() string {
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
	return fmt.Sprintf("%s %s by %s", r.Verb, target, r.Effective())
}

// Effective returns the user whose rights counted: the impersonated one if any.
func (r Request) Effective() string {
	if r.ImpersonatedUser != "" {
		return r.ImpersonatedUser
	}
	return r.User
}

// Condition says whether a request is of interest.
type Condition func(Request) bool

// Requests are requests in the order in which they were answered.
type Requests []Request

// Where returns the requests that meet all conditions.
func (rs Requests) Where(conditions ...Condition) Requests {
	var kept Requests
	for _, r := range rs {
		if !slices.ContainsFunc(conditions, func(c Condition) bool { return !c(r) }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// Without returns the requests that meet none of the conditions.
func (rs Requests) Without(conditions ...Condition) Requests {
	var kept Requests
	for _, r := range rs {
		if !slices.ContainsFunc(conditions, func(c Condition) bool { return c(r) }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// String sums the requests up, most frequent first, one line for each kind: for
// messages of assertions about their number.
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

// By is met by requests of an authenticated user, whomever it impersonated.
func By(user string) Condition { return func(r Request) bool { return r.User == user } }

// As is met by requests that were made with a user's rights.
func As(user string) Condition { return func(r Request) bool { return r.Effective() == user } }

// Agent is met by requests whose user agent begins with prefix.
func Agent(prefix string) Condition {
	return func(r Request) bool { return strings.HasPrefix(r.UserAgent, prefix) }
}

// Verb is met by requests with one of the verbs.
func Verb(verbs ...string) Condition {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// Resource is met by requests for a resource, such as "configmaps" or
// "deployments/status". Without a subresource it means the object itself;
// "deployments/*" means both.
func Resource(name string) Condition {
	resource, sub, _ := strings.Cut(name, "/")
	return func(r Request) bool { return r.Resource == resource && (sub == "*" || r.Subresource == sub) }
}

// In is met by requests in a namespace.
func In(namespace string) Condition { return func(r Request) bool { return r.Namespace == namespace } }

// Named is met by requests for one object.
func Named(name string) Condition { return func(r Request) bool { return r.Name == name } }

// Write is met by requests that change something, or would without dry run.
func Write(r Request) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// DryRun is met by requests that change nothing although they look like it.
func DryRun(r Request) bool { return strings.Contains(r.URI, "dryRun=") }

// Watch is met by watches that ended.
func Watch(r Request) bool { return r.Verb == "watch" }

// Lease is met by requests for leases: leader election, and heartbeats of nodes.
func Lease(r Request) bool { return r.Resource == "leases" }

// Discovery is met by requests for what the API server serves, which clients
// make when they like: API groups, OpenAPI, version and health.
func Discovery(r Request) bool { return r.Resource == "" }

// Failed is met by requests that were answered with a status of 400 or more.
func Failed(r Request) bool { return r.Code >= 400 }
