// Package kindclient describes a served kind to programs: as a Go package with the types of the
// kind, from which the generators of Kubernetes make clients, and as an OpenAPI document.
package kindclient
