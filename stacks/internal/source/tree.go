// Package source reads files of an unpacked artifact. Nothing outside its root is
// read, whatever a path or a symbolic link says, and everything is bounded.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ksctl/gitops/stacks/problem"
)

// Limits of what one Tree reads.
const (
	MaxFile  = 16 << 20
	MaxTotal = 256 << 20
	MaxFiles = 50_000
	MaxDepth = 32
)

// Tree is a folder and what is below it. It is safe for concurrent use.
type Tree struct {
	root  *os.Root
	bytes atomic.Int64
	files atomic.Int64
	seen  trace
	seal  seal
}

// Open opens the folder dir.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &problem.Error{Message: "the source cannot be opened: " + reason(err), Err: err}
	}
	return &Tree{root: root}, nil
}

// Close releases the folder.
func (t *Tree) Close() error { return t.root.Close() }

// Clean joins base and a path written by a user. The result has slashes, is
// relative to the root and does not leave it.
func Clean(base, rel string) (string, error) {
	if strings.ContainsAny(rel, "\\\x00") {
		return "", fmt.Errorf("the path %q has characters that are not allowed", rel)
	}
	if path.IsAbs(rel) {
		return "", fmt.Errorf("the path %q is absolute; it must be relative", rel)
	}
	clean := path.Join(base, rel)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("the path %q leaves the source", rel)
	}
	if clean == "" {
		clean = "."
	}
	return clean, nil
}

// Stat follows symbolic links as far as they stay inside the root.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	info, err := t.root.Stat(name)
	t.seen.stat(name, info)
	return info, err
}

// IsDir says whether name is a folder.
func (t *Tree) IsDir(name string) bool {
	info, err := t.Stat(name)
	return err == nil && info.IsDir()
}

// IsFile says whether name is a regular file.
func (t *Tree) IsFile(name string) bool {
	info, err := t.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Read reads a regular file of at most limit bytes. One that is encrypted is what was given
// with Decrypt; without that it is as it lies there, and stands in Sealed.
func (t *Tree) Read(name string, limit int64) ([]byte, error) {
	data, err := t.Stored(name, limit)
	if err != nil {
		return nil, err
	}
	return t.seal.open(name, data, limit)
}

// Stored reads a regular file of at most limit bytes as it lies there, encrypted or not.
func (t *Tree) Stored(name string, limit int64) ([]byte, error) {
	fail := func(format string, args ...any) error {
		return &problem.Error{File: name, Message: fmt.Sprintf(format, args...)}
	}
	info, err := t.Stat(name)
	if err != nil {
		return nil, &problem.Error{File: name, Message: "the file cannot be read: " + reason(err), Err: err}
	}
	if !info.Mode().IsRegular() {
		return nil, fail("this is not a regular file")
	}
	if info.Size() > limit {
		return nil, fail("the file has %d bytes; %d are allowed", info.Size(), limit)
	}
	if t.files.Add(1) > MaxFiles {
		return nil, fail("more than %d files are read", MaxFiles)
	}
	if t.bytes.Add(info.Size()) > MaxTotal {
		return nil, fail("more than %d bytes are read", MaxTotal)
	}
	f, err := t.root.Open(name)
	if err != nil {
		return nil, &problem.Error{File: name, Message: "the file cannot be read: " + reason(err), Err: err}
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, &problem.Error{File: name, Message: "the file cannot be read: " + reason(err), Err: err}
	}
	if int64(len(data)) > limit {
		return nil, fail("the file has more than %d bytes", limit)
	}
	t.seen.file(name, data)
	return data, nil
}

// ReadDir lists the names in a folder, sorted.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := t.root.Open(name)
	if err != nil {
		return nil, &problem.Error{File: name, Message: "the folder cannot be read: " + reason(err), Err: err}
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(MaxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &problem.Error{File: name, Message: "the folder cannot be read: " + reason(err), Err: err}
	}
	if len(entries) > MaxFiles {
		return nil, &problem.Error{File: name, Message: fmt.Sprintf("the folder has more than %d entries", MaxFiles)}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	t.seen.folder(name, entries)
	return entries, nil
}

// Files lists every regular file below a folder, sorted, with its path below the root.
// skip, when given, leaves a file or a whole folder out.
func (t *Tree) Files(dir string, skip func(name string, info fs.FileInfo) bool) ([]string, error) {
	var out []string
	visited := 0
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		if depth > MaxDepth {
			return &problem.Error{File: dir, Message: fmt.Sprintf("folders are nested deeper than %d", MaxDepth)}
		}
		entries, err := t.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if visited++; visited > MaxFiles {
				return &problem.Error{File: dir, Message: fmt.Sprintf("there are more than %d files and folders", MaxFiles)}
			}
			info, err := t.Stat(name)
			if err != nil {
				return &problem.Error{File: name, Message: "the file cannot be read: " + reason(err), Err: err}
			}
			switch {
			case skip != nil && skip(name, info):
			case info.IsDir():
				if err := walk(name, depth+1); err != nil {
					return err
				}
			default:
				out = append(out, name)
			}
		}
		return nil
	}
	return out, walk(dir, 0)
}

// reason drops the path of a file error, which would tell where the source is unpacked.
func reason(err error) string {
	if pe, ok := err.(*fs.PathError); ok { //nolint:errorlint // the outermost one is meant
		return pe.Err.Error()
	}
	return err.Error()
}
