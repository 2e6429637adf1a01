// Package publish publishes rendered objects as an ExternalArtifact of Flux, which
// kustomize-controller and others accept as a source (RFC-0012 of fluxcd/flux2). It is independent
// of API kinds: the publishing object is the owner, and the ExternalArtifact has its namespace and
// name.
package publish
