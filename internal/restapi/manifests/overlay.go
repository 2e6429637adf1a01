package manifests

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// overlay is a tree with changed files.
type overlay struct {
	fs.FS
	// files are the new contents by path, nil for a deleted file.
	files map[string][]byte
}

var _ fs.ReadDirFS = overlay{}

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	content, changed := o.files[name]
	switch {
	case changed && content == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case changed:
		return &changedFile{changedInfo{path.Base(name), int64(len(content)), 0o644}, bytes.NewReader(content)}, nil
	}
	f, err := o.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) && o.hasFolder(name) {
		return &changedFile{changedInfo{path.Base(name), 0, fs.ModeDir | 0o755}, bytes.NewReader(nil)}, nil
	}
	return f, err
}

// hasFolder returns true if a changed file is below a folder.
func (o overlay) hasFolder(name string) bool {
	for file, content := range o.files {
		if content != nil && (name == "." || strings.HasPrefix(file, name+"/")) {
			return true
		}
	}
	return false
}

// ReadDir implements fs.ReadDirFS.
func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || !o.hasFolder(name)) {
		return nil, err
	}
	byName := map[string]fs.DirEntry{}
	for _, e := range entries {
		byName[e.Name()] = e
	}
	for file, content := range o.files {
		rest := file
		if name != "." {
			below, ok := strings.CutPrefix(file, name+"/")
			if !ok {
				continue
			}
			rest = below
		}
		first, _, deeper := strings.Cut(rest, "/")
		switch {
		case deeper && content != nil && byName[first] == nil:
			byName[first] = fs.FileInfoToDirEntry(changedInfo{first, 0, fs.ModeDir | 0o755})
		case !deeper && content == nil:
			delete(byName, first)
		case !deeper:
			byName[first] = fs.FileInfoToDirEntry(changedInfo{first, int64(len(content)), 0o644})
		}
	}
	out := make([]fs.DirEntry, 0, len(byName))
	for _, k := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[k])
	}
	return out, nil
}

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
