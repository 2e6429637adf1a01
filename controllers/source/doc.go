// Package source reconciles KsctlSource: it fetches a commit of a Git
// repository or an artifact of an OCI registry, if somebody trusted has signed
// it, keeps its files as an artifact and serves that over HTTP, in the shape
// that Flux sources have. A repository whose branch has not moved costs one
// request, a commit that was asked for by its id and is kept costs none.
package source
