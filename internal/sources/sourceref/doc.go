// Package sourceref resolves a reference to a source and returns its artifact. Sources are Flux's
// GitRepository, OCIRepository, Bucket and ExternalArtifact, and KsctlSource.
//
// Flux need not be installed. Resolver checks through Resolver.Serves whether the cluster serves a
// kind before it calls the client: otherwise the cache would start a watch that never syncs. A kind
// that is served later is read from then on.
package sourceref
