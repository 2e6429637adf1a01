// Package sourceref finds the artifact of the source that an object refers to:
// a GitRepository, OCIRepository, Bucket or ExternalArtifact of Flux, or a KsctlSource.
//
// Flux need not be installed. Reading a kind that the cluster does not serve
// is refused before the client is asked, so that no cache begins a watch that
// can never sync; the check is Resolver.Serves, from discovery. A kind that
// appears later is read from then on.
package sourceref
