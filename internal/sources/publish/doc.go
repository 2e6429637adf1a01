// Package publish offers rendered objects as an ExternalArtifact of Flux, which
// kustomize-controller and others take as a source (RFC-0012 of fluxcd/flux2). It
// knows no kind: whoever publishes is an owner, whose namespace and name the
// ExternalArtifact has.
package publish
