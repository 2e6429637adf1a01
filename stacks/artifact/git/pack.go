package git

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/ksctl/gitops/stacks/artifact"
)

// interruptible is a file whose reading ends with a context.
type interruptible struct {
	ctx context.Context
	*os.File
}

// Read implements io.Reader.
func (f interruptible) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// scan looks through a pack once, before anything in it is inflated in whole:
// the parser that comes after makes room for as much as a pack says it holds,
// and a delta of a few bytes can say gigabytes.
func scan(f interruptible, limits Limits) error {
	s := packfile.NewScanner(f)
	_, count, err := s.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(limits.Objects) {
		return unsafeTree(artifact.TooManyFiles, "", "it has %d objects, at most %d are allowed", count, limits.Objects)
	}
	sum := total{limits: limits}
	for range count {
		h, err := s.NextObjectHeader()
		if err != nil {
			return err
		}
		if err := sum.add(h.Length); err != nil {
			return err
		}
		var head deltaHead
		n, _, err := s.NextObject(&head)
		if err != nil {
			return err
		}
		if n != h.Length {
			return packfile.ErrMalformedPackFile
		}
		if h.Type.IsDelta() {
			if err := sum.add(head.target()); err != nil {
				return err
			}
		}
	}
	return nil
}

type total struct {
	limits Limits
	bytes  int64
}

func (t *total) add(n int64) error {
	if limit := t.limits.Tree.FileBytes; n < 0 || n > limit {
		return unsafeTree(artifact.TooLarge, "", "it has an object of more than the %d bytes allowed", limit)
	}
	if t.bytes += n; t.bytes > t.limits.ObjectBytes {
		return unsafeTree(artifact.TooLarge, "", "its objects have more than the %d bytes allowed", t.limits.ObjectBytes)
	}
	return nil
}

// deltaHead keeps the first bytes of a delta, which say how large its base and
// its result are.
type deltaHead struct {
	buf [20]byte
	n   int
}

// Write implements io.Writer.
func (d *deltaHead) Write(p []byte) (int, error) {
	d.n += copy(d.buf[d.n:], p)
	return len(p), nil
}

// target is the size of the delta's result, negative if it makes no sense.
func (d *deltaHead) target() int64 {
	rest := d.buf[:d.n]
	var size uint64
	for range 2 { // the base's, then the result's
		size = 0
		for shift := 0; ; shift += 7 {
			if len(rest) == 0 || shift > 56 {
				return -1
			}
			b := rest[0]
			rest = rest[1:]
			size |= uint64(b&0x7f) << shift
			if b&0x80 == 0 {
				break
			}
		}
	}
	return int64(size)
}

// resolve looks through the pack in the file name, resolves its deltas and
// keeps the objects in another file.
func resolve(ctx context.Context, name, objects string, limits Limits) (*store, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "opening the pack")
	}
	defer func() { _ = file.Close() }()
	pack := interruptible{ctx, file}
	if err := scan(pack, limits); err != nil {
		return nil, badContent(ctx, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "reading the pack")
	}
	st, err := newStore(ctx, objects)
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "keeping objects")
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
		return nil, badContent(ctx, err)
	}
	return st, nil
}

func badContent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failBy(OperationFailed, context.Cause(ctx), "reading the repository took too long or was interrupted")
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if disk, ok := errors.AsType[diskError](err); ok {
		return failBy(Reason(artifact.Storage), disk.error, "keeping objects")
	}
	return failBy(OperationFailed, err, "the pack that the server sent is damaged")
}
