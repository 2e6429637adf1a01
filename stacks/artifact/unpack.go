package artifact

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// Size is the size of an unpacked tree.
type Size struct {
	// Files is the number of files and directories together.
	Files int `json:"files"`
	// Bytes is the total size of all files.
	Bytes int64 `json:"bytes"`
}

// Unpack writes the files of a gzip-compressed tarball below dir, which must
// exist and be empty. It accepts only regular files and directories. It refuses a
// tarball with a link of any kind, a device, a path out of the tree or a duplicate
// file. Files become read-only; of their mode, only the executable bit is kept.
//
// After an error, dir holds a part of the tree, which the caller must remove.
func Unpack(ctx context.Context, r io.Reader, dir string, limits Limits) (Size, error) {
	gz, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		if ctx.Err() != nil {
			return Size{}, wrapError(Unreachable, context.Cause(ctx), "interrupted while unpacking")
		}
		return Size{}, wrapError(Malformed, err, "not a gzip-compressed tarball")
	}
	return unpackTar(ctx, gz, dir, limits)
}

// unpackTar unpacks an uncompressed tarball. It reads r to its end, so that a checksum at
// the end is verified, too.
func unpackTar(ctx context.Context, r io.Reader, dir string, limits Limits) (Size, error) {
	limits = limits.WithDefaults()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Size{}, wrapError(Storage, err, "opening the target directory")
	}
	defer func() { _ = root.Close() }()

	// Headers, padding and extended names take bytes that belong to no file.
	overhead := int64(limits.Files)*4096 + 1<<20
	bounded := &boundedReader{ctx: ctx, r: r, left: limits.UnpackedBytes + overhead}
	u := &unpacker{root: root, tr: tar.NewReader(bounded), usage: usage{limits: limits}, buf: make([]byte, 64<<10)}
	err = u.unpackEntries()
	if err == nil {
		_, err = io.CopyBuffer(io.Discard, bounded, u.buf)
	}
	size := Size{Files: u.usage.files, Bytes: u.usage.bytes}
	switch {
	case err == nil:
		return size, nil
	case ctx.Err() != nil:
		return size, wrapError(Unreachable, context.Cause(ctx), "interrupted while unpacking")
	case bounded.left < 0:
		return size, newError(TooLarge, "", "the tarball has more than the %d bytes allowed", limits.UnpackedBytes)
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return size, err
	}
	return size, wrapError(Malformed, err, "reading the tarball")
}

type unpacker struct {
	root  *os.Root
	tr    *tar.Reader
	usage usage
	buf   []byte
	// lastDir is the directory that was created or found last. Entries are usually sorted,
	// so the next entry is often in the same directory.
	lastDir string
}

func (u *unpacker) unpackEntries() error {
	for {
		h, err := u.tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := u.unpackEntry(h); err != nil {
			return err
		}
	}
}

func (u *unpacker) unpackEntry(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeXGlobalHeader:
		return nil // a comment that git archive writes
	case tar.TypeSymlink:
		return newError(UnsafePath, h.Name,
			"the entry is a symbolic link to %q; only regular files and directories are allowed",
			truncate(h.Linkname, 256))
	case tar.TypeLink:
		return newError(UnsafePath, h.Name,
			"the entry is a hard link to %q; only regular files and directories are allowed", truncate(h.Linkname, 256))
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return newError(UnsafePath, h.Name,
			"the entry is a device or pipe; only regular files and directories are allowed")
	default:
		return newError(Malformed, h.Name, "the entry has the unknown type %q", h.Typeflag)
	}
	name, err := treePath(h.Name, u.usage.limits.Depth)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return u.makeDir(name)
	}
	if name == "." {
		return newError(Malformed, h.Name, "the file has no name")
	}
	if err := u.makeDir(path.Dir(name)); err != nil {
		return err
	}
	return u.writeFile(name, h)
}

// makeDir creates a directory and its parents. Each new directory counts as an entry: a
// tarball of few files with long paths must not create a million directories.
func (u *unpacker) makeDir(name string) error {
	if name == "." || name == u.lastDir {
		return nil
	}
	if err := u.makeDir(path.Dir(name)); err != nil {
		return err
	}
	err := u.root.Mkdir(name, 0o755)
	switch {
	case err == nil:
		if err := u.usage.addEntry(); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrExist):
		info, err := u.root.Lstat(name)
		if err != nil {
			return wrapError(Storage, err, "unpacking")
		}
		if !info.IsDir() {
			return newError(Malformed, name, "the path is both a file and a directory")
		}
	default:
		return wrapError(Storage, err, "unpacking")
	}
	u.lastDir = name
	return nil
}

func (u *unpacker) writeFile(name string, h *tar.Header) error {
	if err := u.usage.addEntry(); err != nil {
		return err
	}
	if err := u.usage.addFileBytes(name, h.Size); err != nil {
		return err
	}
	mode := fs.FileMode(0o444)
	if h.FileInfo().Mode()&0o111 != 0 {
		mode = 0o555
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return newError(Malformed, name, "the file appears twice")
	}
	if err != nil {
		return wrapError(Storage, err, "unpacking")
	}
	w := &TrackingWriter{W: f}
	_, err = io.CopyBuffer(w, u.tr, u.buf)
	if cerr := f.Close(); err == nil {
		w.Err = cerr
	}
	if w.Err != nil {
		return wrapError(Storage, w.Err, "unpacking")
	}
	return err
}

// TrackingWriter records write errors of W, which distinguish a failed disk from content that
// can't be read.
type TrackingWriter struct {
	W   io.Writer
	Err error
	n   int64
}

// Write implements io.Writer.
func (w *TrackingWriter) Write(p []byte) (int, error) {
	n, err := w.W.Write(p)
	w.n += int64(n)
	w.Err = cmp.Or(err, w.Err)
	return n, err
}

// boundedReader fails after a number of bytes, or when the context is done.
type boundedReader struct {
	ctx context.Context
	r   io.Reader
	// left is negative after the limit was exceeded.
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	// One more byte shows whether the content is longer than allowed or exactly as long.
	if int64(len(p)) > b.left {
		p = p[:max(b.left, -1)+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("limit reached")
	}
	return n, err
}
