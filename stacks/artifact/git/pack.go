package git

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/ksctl/gitops/stacks/artifact"
)

// contextFile is a file that can't be read after the context is done.
type contextFile struct {
	ctx context.Context
	*os.File
}

// Read implements io.Reader.
func (f contextFile) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// scanPack checks the sizes of all objects of a pack before any object is inflated in full. The
// parser, which runs afterwards, allocates as much memory as the pack claims to need, and a
// delta of a few bytes can claim gigabytes.
func scanPack(f contextFile, limits Limits) error {
	s := packfile.NewScanner(f)
	_, count, err := s.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(limits.Objects) {
		return treeError(artifact.TooManyFiles, "", "the pack has %d objects, at most %d are allowed", count,
			limits.Objects)
	}
	var total int64
	add := func(n int64) error {
		if limit := limits.Tree.FileBytes; n < 0 || n > limit {
			return treeError(artifact.TooLarge, "", "the pack has an object of more than the %d bytes allowed", limit)
		}
		if total += n; total > limits.ObjectBytes {
			return treeError(artifact.TooLarge, "", "the objects of the pack have more than the %d bytes allowed",
				limits.ObjectBytes)
		}
		return nil
	}
	for range count {
		h, err := s.NextObjectHeader()
		if err != nil {
			return err
		}
		if err := add(h.Length); err != nil {
			return err
		}
		var head deltaHeader
		n, _, err := s.NextObject(&head)
		if err != nil {
			return err
		}
		if n != h.Length {
			return packfile.ErrMalformedPackFile
		}
		if h.Type.IsDelta() {
			if err := add(head.resultSize()); err != nil {
				return err
			}
		}
	}
	return nil
}

// deltaHeader keeps the first bytes of a delta, which contain the sizes of its base and its
// result.
type deltaHeader struct {
	buf [20]byte
	n   int
}

// Write implements io.Writer.
func (d *deltaHeader) Write(p []byte) (int, error) {
	d.n += copy(d.buf[d.n:], p)
	return len(p), nil
}

// resultSize returns the size of the delta's result, and a negative number if it is invalid.
func (d *deltaHeader) resultSize() int64 {
	_, n := binary.Uvarint(d.buf[:d.n]) // the size of the base
	if n <= 0 {
		return -1
	}
	size, n := binary.Uvarint(d.buf[n:d.n])
	if n <= 0 {
		return -1
	}
	return int64(size)
}

// loadPack scans the pack in the file name, resolves its deltas and stores the objects in the
// file objects.
func loadPack(ctx context.Context, name, objects string, limits Limits) (*objectStore, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, wrapError(artifact.Storage, err, "opening the pack")
	}
	defer func() { _ = file.Close() }()
	pack := contextFile{ctx, file}
	if err := scanPack(pack, limits); err != nil {
		return nil, packContentError(ctx, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, wrapError(artifact.Storage, err, "reading the pack")
	}
	st, err := newStore(ctx, objects)
	if err != nil {
		return nil, storageError(err)
	}
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack), st)
	if err == nil {
		_, err = parser.Parse()
	}
	if err == nil {
		err = st.flush()
	}
	if err != nil {
		_ = st.close()
		return nil, packContentError(ctx, err)
	}
	return st, nil
}

func packContentError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return wrapError(OperationFailed, context.Cause(ctx), "reading the repository timed out or was interrupted")
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if diskErr, ok := errors.AsType[diskError](err); ok {
		return storageError(diskErr.error)
	}
	return wrapError(OperationFailed, err, "the pack that the server sent is damaged")
}
