package proxy

import (
	"net/http"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster"
)

// parse returns the attributes of a request like the audit log of the API server has them. For
// URIs that are not of resources it returns only the verb. The user is unknown: only the API
// server authenticates the request.
func parse(r *http.Request) cluster.Request {
	q := cluster.Request{Verb: strings.ToLower(r.Method), UserAgent: r.UserAgent(), URI: r.URL.RequestURI(),
		ImpersonatedUser: r.Header.Get("Impersonate-User")}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		q.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.Group, q.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return q
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Subresource = parts[2]
	}
	q.Verb = verb(r, q.Name != "")
	return q
}

// writeVerbs are the verbs of HTTP methods, for DELETE that of one object.
var writeVerbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete"}

func verb(r *http.Request, one bool) string {
	watch := r.URL.Query().Get("watch")
	switch write := writeVerbs[r.Method]; {
	case write == "delete" && !one:
		return "deletecollection"
	case write != "":
		return write
	case watch != "" && watch != "false" && watch != "0":
		return "watch"
	case one:
		return "get"
	}
	return "list"
}
