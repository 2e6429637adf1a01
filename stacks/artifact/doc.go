// Package artifact fetches, verifies, unpacks, caches and packs the immutable
// trees of files that stacks are read from. An artifact is a gzip-compressed
// tarball named by its SHA-256 digest, as Flux sources publish it.
//
// Everything that comes from outside is taken as hostile: nothing of a download
// is interpreted before its digest was found right, everything is bounded
// ([Limits]), and nothing but plain files and folders is unpacked.
//
//	Fetch   Artifact (URL, digest) → Tree on disk, shared, leased
//	Unpack  tarball                → folder
//	Pack    fs.FS                  → tarball, the same bytes for the same files
package artifact
