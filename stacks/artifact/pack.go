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

// PackOptions say what of a file system becomes an artifact.
type PackOptions struct {
	// Skip leaves out a file, or a folder with everything in it. Nil keeps all.
	Skip func(name string, d fs.DirEntry) bool
	// Limits of the artifact; nothing is packed that Fetch would refuse with the same ones.
	Limits Limits
}

// Packed describes an artifact that was packed.
type Packed struct {
	// Digest of the tarball, as sha256:<hex>.
	Digest string
	// Size of the tarball in bytes.
	Size int64
	// Tree is the size of what is in it.
	Tree Size
	// LeftOut is the number of links, special files and names that are not
	// UTF-8: a tree can't hold them.
	LeftOut int
	// LeftOutNames are the first few of them.
	LeftOutNames []string
}

const leftOutNames = 5

// Pack writes the plain files of fsys to w as a gzip-compressed tarball. The
// bytes depend on nothing but paths, contents and whether a file is
// executable, so the same files have the same digest wherever and whenever
// they are packed (by binaries built with the same Go release: compression is
// part of its library). As in Git, a folder without files is not kept.
//
// Symbolic links and special files are left out, as Flux does, and counted.
func Pack(ctx context.Context, w io.Writer, fsys fs.FS, o PackOptions) (Packed, error) {
	sum := sha256.New()
	counted := &countingWriter{w: io.MultiWriter(w, sum)}
	out := &fileWriter{w: counted}
	gz := gzip.NewWriter(out)
	p := &packer{ctx: ctx, fsys: fsys, tw: tar.NewWriter(gz), skip: o.Skip, count: tally{limits: o.Limits.WithDefaults()}}

	err := fs.WalkDir(fsys, ".", p.visit)
	if err == nil {
		err = p.tw.Close()
	}
	if err == nil {
		err = gz.Close()
	}
	switch {
	case ctx.Err() != nil:
		return Packed{}, failBy(Unreachable, context.Cause(ctx), "interrupted while packing")
	case out.err != nil:
		return Packed{}, failBy(Storage, out.err, "writing the tarball")
	case err != nil:
		return Packed{}, err
	case counted.n > p.count.limits.DownloadBytes:
		return Packed{}, fail(TooLarge, "", "the tarball has %d bytes, at most %d are allowed", counted.n, p.count.limits.DownloadBytes)
	}
	p.packed.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	p.packed.Size = counted.n
	p.packed.Tree = Size{Files: p.count.files, Bytes: p.count.bytes}
	return p.packed, nil
}

type packer struct {
	ctx    context.Context
	fsys   fs.FS
	tw     *tar.Writer
	skip   func(string, fs.DirEntry) bool
	count  tally
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
		return skipped(d)
	}
	if !utf8.ValidString(name) || (!d.IsDir() && !d.Type().IsRegular()) {
		p.leaveOut(name)
		return skipped(d)
	}
	if _, err := treePath(name, p.count.limits.Depth); err != nil {
		return err
	}
	if err := p.count.entry(); err != nil {
		return err
	}
	if d.IsDir() {
		return nil
	}
	return p.file(name, d)
}

func skipped(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func (p *packer) leaveOut(name string) {
	p.packed.LeftOut++
	if len(p.packed.LeftOutNames) < leftOutNames {
		p.packed.LeftOutNames = append(p.packed.LeftOutNames, name)
	}
}

func (p *packer) file(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return readError(name, err)
	}
	if err := p.count.content(name, info.Size()); err != nil {
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
		return fail(Storage, name, "changed while it was packed")
	}
	return nil
}

// readError keeps what a file system of ours says of itself.
func readError(name string, err error) error {
	if _, ok := errors.AsType[interface {
		error
		Terminal() bool
	}](err); ok {
		return err
	}
	return &Error{Reason: Storage, Entry: name, Message: "packing", Err: err}
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
