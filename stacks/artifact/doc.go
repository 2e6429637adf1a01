// Package artifact fetches, verifies, unpacks, caches and packs the immutable
// file trees that stacks are read from. An artifact is a gzip-compressed
// tarball identified by its SHA-256 digest, as Flux sources publish it.
//
// The package treats all remote content as hostile: it checks the digest of a
// download before it interprets the content, bounds every resource ([Limits]),
// and unpacks only regular files and directories.
//
//	Fetch   Artifact (URL, digest) → Tree on disk, shared, leased
//	Unpack  tarball                → directory
//	Pack    fs.FS                  → tarball, the same bytes for the same files
package artifact
