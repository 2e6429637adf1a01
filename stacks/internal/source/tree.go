// Package source reads files of an unpacked artifact. It reads nothing outside the artifact's root,
// even if a path or a symbolic link leads there, and all reads are bounded.
package source

import (
	"bytes"
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

// Limits of one Tree: bytes per file, bytes and reads in total, and depth of folders. MaxFiles also
// limits the entries of a folder.
const (
	MaxFile  = 16 << 20
	MaxTotal = 256 << 20
	MaxFiles = 50_000
	MaxDepth = 32
)

// Tree is a folder with all of its files and subfolders. It is safe for concurrent use.
type Tree struct {
	// root is the folder on disk; nil if fsys has the files.
	root *os.Root
	fsys fs.FS

	folder    folderHandle
	bytes     atomic.Int64
	files     atomic.Int64
	trace     trace
	encrypted encryptedFiles
}

// Open opens the folder dir. The caller closes it.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &problem.Error{Message: "the source cannot be opened: " + errorReason(err), Err: err}
	}
	return &Tree{
		root:      root,
		trace:     trace{entries: map[string]string{}},
		encrypted: encryptedFiles{undecrypted: map[EncryptedFile]bool{}, decrypted: map[string]bool{}},
	}, nil
}

// OpenFS returns a tree of the files of fsys. It has symbolic links only if fsys follows them.
func OpenFS(fsys fs.FS) *Tree {
	return &Tree{
		fsys:      fsys,
		trace:     trace{entries: map[string]string{}},
		encrypted: encryptedFiles{undecrypted: map[EncryptedFile]bool{}, decrypted: map[string]bool{}},
	}
}

// Close releases the folder.
func (t *Tree) Close() {
	if t.root == nil {
		return
	}
	t.folder.close()
	_ = t.root.Close()
}

// stat is like fs.Stat.
func (t *Tree) stat(name string) (fs.FileInfo, error) {
	if t.root == nil {
		return fs.Stat(t.fsys, path.Clean(name))
	}
	return inFolder(t, name, (*os.Root).Stat)
}

// open opens a regular file.
func (t *Tree) open(name string) (fs.File, error) {
	if t.root == nil {
		return t.fsys.Open(path.Clean(name))
	}
	return inFolder(t, name, (*os.Root).Open)
}

// Clean joins base and a path written by a user. The result uses slashes, is relative to the root
// and does not leave it.
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

// Stat is like fs.Stat. It follows symbolic links only within the root.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	info, err := t.stat(name)
	t.trace.record(traceStat+name, fileType(info))
	return info, err
}

// IsDir returns true if name is a folder.
func (t *Tree) IsDir(name string) bool {
	info, err := t.Stat(name)
	return err == nil && info.IsDir()
}

// IsFile returns true if name is a regular file.
func (t *Tree) IsFile(name string) bool {
	info, err := t.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Read reads a regular file of at most limit bytes. For an encrypted file, it returns the content
// from SetDecrypted. Without that, it returns the encrypted content and adds the file to
// EncryptedFiles.
func (t *Tree) Read(name string, limit int64) ([]byte, error) {
	data, err := t.ReadRaw(name, limit)
	if err != nil {
		return nil, err
	}
	return t.encrypted.content(name, data, limit)
}

// ReadRaw reads a regular file of at most limit bytes without decryption.
func (t *Tree) ReadRaw(name string, limit int64) ([]byte, error) {
	info, err := t.Stat(name)
	if err != nil {
		return nil, readError("file", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, problem.Errorf(name, 0, "this is not a regular file")
	}
	if info.Size() > limit {
		return nil, problem.Errorf(name, 0, "the file has %d bytes; %d are allowed", info.Size(), limit)
	}
	if t.files.Add(1) > MaxFiles {
		return nil, problem.Errorf(name, 0, "more than %d files are read", MaxFiles)
	}
	if t.bytes.Add(info.Size()) > MaxTotal {
		return nil, problem.Errorf(name, 0, "more than %d bytes are read", MaxTotal)
	}
	f, err := t.open(name)
	if err != nil {
		return nil, readError("file", name, err)
	}
	defer func() { _ = f.Close() }()
	buffer := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead)) // large enough for a single read
	if _, err := buffer.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, readError("file", name, err)
	}
	data := buffer.Bytes()
	if int64(len(data)) > limit {
		return nil, problem.Errorf(name, 0, "the file has more than %d bytes", limit)
	}
	t.trace.record(traceFile+name, hash(data))
	return data, nil
}

// ReadDir returns the entries of a folder, sorted by name.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := t.readDir(name)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, readError("folder", name, err)
	}
	if len(entries) > MaxFiles {
		return nil, problem.Errorf(name, 0, "the folder has more than %d entries", MaxFiles)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	t.trace.record(traceFolder+name, hashEntries(entries))
	return entries, nil
}

func (t *Tree) readDir(name string) ([]fs.DirEntry, error) {
	if t.root == nil {
		return fs.ReadDir(t.fsys, path.Clean(name))
	}
	f, err := t.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.ReadDir(MaxFiles + 1)
}

// Files returns the paths of all files below a folder, relative to the root and sorted. If skip is
// not nil, files and whole folders for which it returns true are left out.
func (t *Tree) Files(dir string, skip func(name string, info fs.FileInfo) bool) ([]string, error) {
	var out []string
	visited := 0
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		if depth > MaxDepth {
			return problem.Errorf(dir, 0, "folders are nested deeper than %d", MaxDepth)
		}
		entries, err := t.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if visited++; visited > MaxFiles {
				return problem.Errorf(dir, 0, "there are more than %d files and folders", MaxFiles)
			}
			info, err := t.Stat(name)
			if err != nil {
				return readError("file", name, err)
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

// readError returns the error for a file or folder that cannot be read.
func readError(noun, name string, err error) error {
	return &problem.Error{File: name, Message: "the " + noun + " cannot be read: " + errorReason(err), Err: err}
}

// errorReason returns the message of a file error without the path, which would disclose where the
// source is unpacked.
func errorReason(err error) string {
	if pe, ok := err.(*fs.PathError); ok { //nolint:errorlint // only the outermost error has the path
		return pe.Err.Error()
	}
	return err.Error()
}
