// Package source reconciles KsctlSources: it fetches a commit of a Git repository or an artifact of
// an OCI registry, verifies its signature, stores its files as an artifact and serves this over
// HTTP, in the same form as Flux sources. An unchanged branch costs one request, a stored commit
// that is pinned by its id costs none. A second controller, Notifier, writes commit statuses.
package source
