// Package storage keeps artifacts of ours on disk, each named by its digest, and
// serves them over HTTP. It knows no kind: each has a space of its own.
package storage
