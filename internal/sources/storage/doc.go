// Package storage stores artifacts that this controller produces on disk, each named by its digest,
// and serves them over HTTP. It is independent of API kinds: each kind has its own Space.
package storage
