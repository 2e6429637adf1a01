package manifests

import (
	"bytes"
	"io/fs"
	"time"
)

// changedInfo describes a changed file of an overlay.
type changedInfo struct {
	name string
	size int64
	mode fs.FileMode
}

var _ fs.FileInfo = changedInfo{}

// Name implements fs.FileInfo.
func (i changedInfo) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i changedInfo) Size() int64 { return i.size }

// Mode implements fs.FileInfo.
func (i changedInfo) Mode() fs.FileMode { return i.mode }

// ModTime implements fs.FileInfo.
func (i changedInfo) ModTime() time.Time { return time.Time{} }

// IsDir implements fs.FileInfo.
func (i changedInfo) IsDir() bool { return i.mode.IsDir() }

// Sys implements fs.FileInfo.
func (i changedInfo) Sys() any { return nil }

// changedFile is an open file of an overlay.
type changedFile struct {
	info changedInfo
	*bytes.Reader
}

var _ fs.File = (*changedFile)(nil)

// Stat implements fs.File.
func (f *changedFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close implements fs.File.
func (f *changedFile) Close() error { return nil }
