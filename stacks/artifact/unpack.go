package artifact

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// Size of an unpacked tree.
type Size struct {
	// Files and folders together.
	Files int `json:"files"`
	// Bytes of all files.
	Bytes int64 `json:"bytes"`
}

// Unpack writes the files of a gzip-compressed tarball below dir, which must
// exist and be empty. Only plain files and folders are taken: a link of any
// kind, a device, a path that leaves the tree or a file that comes twice
// refuses the whole. Files become read-only and keep only whether they are
// executable.
//
// After an error dir holds a part of the tree; the caller throws it away.
func Unpack(ctx context.Context, r io.Reader, dir string, limits Limits) (Size, error) {
	gz, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		if ctx.Err() != nil {
			return Size{}, failBy(Unreachable, context.Cause(ctx), "interrupted while unpacking")
		}
		return Size{}, failBy(Malformed, err, "not a gzip-compressed tarball")
	}
	return unpackTar(ctx, gz, dir, limits)
}

// unpackTar unpacks an uncompressed tarball. r is read to its end, so that a
// checksum which stands there is verified too.
func unpackTar(ctx context.Context, r io.Reader, dir string, limits Limits) (Size, error) {
	limits = limits.WithDefaults()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Size{}, failBy(Storage, err, "opening the folder to unpack into")
	}
	defer func() { _ = root.Close() }()

	// Headers, padding and extended names cost bytes that no file accounts for.
	overhead := int64(limits.Files)*4096 + 1<<20
	bounded := &boundedReader{ctx: ctx, r: r, left: limits.UnpackedBytes + overhead}
	u := &unpacker{root: root, tr: tar.NewReader(bounded), count: tally{limits: limits}, buf: make([]byte, 64<<10)}
	err = u.all()
	if err == nil {
		_, err = io.CopyBuffer(io.Discard, bounded, u.buf)
	}
	size := Size{Files: u.count.files, Bytes: u.count.bytes}
	switch {
	case err == nil:
		return size, nil
	case ctx.Err() != nil:
		return size, failBy(Unreachable, context.Cause(ctx), "interrupted while unpacking")
	case bounded.exceeded:
		return size, fail(TooLarge, "", "the tarball has more than the %d bytes allowed", limits.UnpackedBytes)
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return size, err
	}
	return size, failBy(Malformed, err, "reading the tarball")
}

type unpacker struct {
	root  *os.Root
	tr    *tar.Reader
	count tally
	buf   []byte
	// last is the folder that was made or found last: entries come sorted.
	last string
}

func (u *unpacker) all() error {
	for {
		h, err := u.tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := u.one(h); err != nil {
			return err
		}
	}
}

func (u *unpacker) one(h *tar.Header) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeXGlobalHeader:
		return nil // a comment of git archive
	case tar.TypeSymlink:
		return fail(UnsafePath, h.Name, "a symbolic link (to %q); a tree holds plain files and folders only", clip(h.Linkname, 256))
	case tar.TypeLink:
		return fail(UnsafePath, h.Name, "a hard link (to %q); a tree holds plain files and folders only", clip(h.Linkname, 256))
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return fail(UnsafePath, h.Name, "a device or pipe; a tree holds plain files and folders only")
	default:
		return fail(Malformed, h.Name, "an entry of unknown type %q", h.Typeflag)
	}
	name, err := treePath(h.Name, u.count.limits.Depth)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return u.folder(name)
	}
	if name == "." {
		return fail(Malformed, h.Name, "a file without a name")
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	return u.file(name, h)
}

// folder makes name and what is above it. Each new one counts as an entry: a
// tarball of few files with long paths must not cost a million folders.
func (u *unpacker) folder(name string) error {
	if name == "." || name == u.last {
		return nil
	}
	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	err := u.root.Mkdir(name, 0o755)
	switch {
	case err == nil:
		if err := u.count.entry(); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrExist):
		info, err := u.root.Lstat(name)
		if err != nil {
			return failBy(Storage, err, "unpacking")
		}
		if !info.IsDir() {
			return fail(Malformed, name, "is a file and a folder")
		}
	default:
		return failBy(Storage, err, "unpacking")
	}
	u.last = name
	return nil
}

func (u *unpacker) file(name string, h *tar.Header) error {
	if err := u.count.entry(); err != nil {
		return err
	}
	if err := u.count.content(name, h.Size); err != nil {
		return err
	}
	mode := fs.FileMode(0o444)
	if h.FileInfo().Mode()&0o111 != 0 {
		mode = 0o555
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fail(Malformed, name, "comes twice")
	}
	if err != nil {
		return failBy(Storage, err, "unpacking")
	}
	w := &fileWriter{w: f}
	_, err = io.CopyBuffer(w, u.tr, u.buf)
	if cerr := f.Close(); err == nil && cerr != nil {
		w.err = cerr
	}
	if w.err != nil {
		return failBy(Storage, w.err, "unpacking")
	}
	return err
}

// fileWriter remembers that it was the disk that failed, not the tarball.
type fileWriter struct {
	w   io.Writer
	err error
}

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// boundedReader ends after a number of bytes, or when the context does.
type boundedReader struct {
	ctx      context.Context
	r        io.Reader
	left     int64
	exceeded bool
}

var errBound = errors.New("limit reached")

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		// One byte more tells "exactly as long as allowed" from "longer".
		var one [1]byte
		n, err := b.r.Read(one[:])
		if n > 0 {
			b.exceeded = true
			return 0, errBound
		}
		return 0, err
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
