package artifact

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"time"
	"unicode/utf8"
)

// PackOptions selects the files of a file system that become an artifact.
type PackOptions struct {
	// Skip excludes a file, or a directory with its content. Nil includes everything.
	Skip func(name string, d fs.DirEntry) bool
	// Limits of the artifact. Pack refuses what Fetch would refuse with the same limits.
	Limits Limits
}

// Packed describes the result of Pack.
type Packed struct {
	// Digest of the tarball, as sha256:<hex>.
	Digest string
	// Size of the tarball in bytes.
	Size int64
	// Tree is the size of the unpacked tree.
	Tree Size
	// LeftOut is the number of links, special files and files with names that are not
	// UTF-8. A tree can't hold them.
	LeftOut int
	// LeftOutNames are the names of the first of them, at most maxLeftOutNames.
	LeftOutNames []string
}

const maxLeftOutNames = 5

// Pack writes the regular files of fsys to w as a gzip-compressed tarball. The bytes
// depend only on paths, contents and executable bits, so the same files have the same
// digest on every machine and at any time, for binaries built with the same Go release:
// compression is part of its library. As in Git, directories without files are omitted.
//
// Symbolic links and special files are left out, as in Flux, and counted.
func Pack(ctx context.Context, w io.Writer, fsys fs.FS, o PackOptions) (Packed, error) {
	sum := sha256.New()
	out := &TrackingWriter{W: io.MultiWriter(w, sum)}
	gz := gzip.NewWriter(out)
	p := &packer{ctx: ctx, fsys: fsys, tw: tar.NewWriter(gz), skip: o.Skip,
		usage: usage{limits: o.Limits.WithDefaults()}}

	err := fs.WalkDir(fsys, ".", p.visit)
	if err == nil {
		err = p.tw.Close()
	}
	if err == nil {
		err = gz.Close()
	}
	switch {
	case ctx.Err() != nil:
		return Packed{}, wrapError(Unreachable, context.Cause(ctx), "interrupted while packing")
	case out.Err != nil:
		return Packed{}, wrapError(Storage, out.Err, "writing the tarball")
	case err != nil:
		return Packed{}, err
	case out.n > p.usage.limits.DownloadBytes:
		return Packed{}, newError(TooLarge, "", "the tarball has %d bytes, at most %d are allowed", out.n,
			p.usage.limits.DownloadBytes)
	}
	p.packed.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	p.packed.Size = out.n
	p.packed.Tree = Size{Files: p.usage.files, Bytes: p.usage.bytes}
	return p.packed, nil
}

type packer struct {
	ctx    context.Context
	fsys   fs.FS
	tw     *tar.Writer
	skip   func(string, fs.DirEntry) bool
	usage  usage
	packed Packed
}

func (p *packer) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return readError(name, err)
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	if p.skip != nil && p.skip(name, d) {
		return skipEntry(d)
	}
	if !utf8.ValidString(name) || (!d.IsDir() && !d.Type().IsRegular()) {
		p.leaveOut(name)
		return skipEntry(d)
	}
	if _, err := treePath(name, p.usage.limits.Depth); err != nil {
		return err
	}
	if err := p.usage.addEntry(); err != nil {
		return err
	}
	if d.IsDir() {
		return nil
	}
	return p.writeFile(name, d)
}

func skipEntry(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func (p *packer) leaveOut(name string) {
	p.packed.LeftOut++
	if len(p.packed.LeftOutNames) < maxLeftOutNames {
		p.packed.LeftOutNames = append(p.packed.LeftOutNames, name)
	}
}

func (p *packer) writeFile(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return readError(name, err)
	}
	if err := p.usage.addFileBytes(name, info.Size()); err != nil {
		return err
	}
	f, err := p.fsys.Open(name)
	if err != nil {
		return readError(name, err)
	}
	defer func() { _ = f.Close() }()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o644, ModTime: time.Unix(0, 0)}
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return readError(name, err)
	}
	n, err := io.Copy(p.tw, f)
	if err != nil {
		return readError(name, err)
	}
	if n != info.Size() {
		return newError(Storage, name, "the file changed during packing")
	}
	return nil
}

// readError returns the errors of this module's own file systems unchanged (they have the
// method Terminal), and wraps others as Storage errors.
func readError(name string, err error) error {
	if _, ok := errors.AsType[interface {
		error
		Terminal() bool
	}](err); ok {
		return err
	}
	return &Error{Reason: Storage, Entry: name, Message: "packing", Err: err}
}
