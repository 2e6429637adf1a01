package git

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// objectStore stores objects sequentially in a file. The pack parser writes objects to it and
// reads the bases of deltas from it.
type objectStore struct {
	ctx     context.Context
	file    *os.File
	w       *bufio.Writer
	size    int64
	objects map[plumbing.Hash]storedObject
}

type storedObject struct {
	kind   plumbing.ObjectType
	offset int64
	size   int64
}

var _ storer.EncodedObjectStorer = (*objectStore)(nil)

// errUnsupported is the error of interface methods that the pack parser does not call.
var errUnsupported = errors.New("not supported by this store")

func newStore(ctx context.Context, name string) (*objectStore, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &objectStore{ctx: ctx, file: file, w: bufio.NewWriterSize(file, 256<<10), objects: map[plumbing.Hash]storedObject{}}, nil
}

func (s *objectStore) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

func (s *objectStore) flush() error {
	if err := s.w.Flush(); err != nil {
		return diskError{err}
	}
	return nil
}

func (s *objectStore) has(h plumbing.Hash) bool {
	_, ok := s.objects[h]
	return ok
}

// content returns a reader of an object, which must have the kind.
func (s *objectStore) content(h plumbing.Hash, kind plumbing.ObjectType) (*io.SectionReader, error) {
	o, ok := s.objects[h]
	if !ok || (kind != plumbing.AnyObject && o.kind != kind) {
		return nil, plumbing.ErrObjectNotFound
	}
	return io.NewSectionReader(s.file, o.offset, o.size), nil
}

// NewEncodedObject implements storer.EncodedObjectStorer.
func (s *objectStore) NewEncodedObject() plumbing.EncodedObject { return &plumbing.MemoryObject{} }

// SetEncodedObject implements storer.EncodedObjectStorer.
func (s *objectStore) SetEncodedObject(o plumbing.EncodedObject) (plumbing.Hash, error) {
	if err := s.ctx.Err(); err != nil {
		return plumbing.ZeroHash, err
	}
	h := o.Hash()
	if s.has(h) {
		return h, nil
	}
	r, err := o.Reader()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer func() { _ = r.Close() }()
	n, err := io.Copy(s.w, r)
	if err != nil {
		return plumbing.ZeroHash, diskError{err}
	}
	s.objects[h] = storedObject{kind: o.Type(), offset: s.size, size: n}
	s.size += n
	return h, nil
}

// EncodedObject implements storer.EncodedObjectStorer.
func (s *objectStore) EncodedObject(kind plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	r, err := s.content(h, kind)
	if err != nil {
		return nil, err
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	m := &plumbing.MemoryObject{}
	m.SetType(s.objects[h].kind)
	if _, err := io.Copy(m, r); err != nil {
		return nil, diskError{err}
	}
	return m, nil
}

// EncodedObjectSize implements storer.EncodedObjectStorer.
func (s *objectStore) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	o, ok := s.objects[h]
	if !ok {
		return 0, plumbing.ErrObjectNotFound
	}
	return o.size, nil
}

// HasEncodedObject implements storer.EncodedObjectStorer.
func (s *objectStore) HasEncodedObject(h plumbing.Hash) error {
	if !s.has(h) {
		return plumbing.ErrObjectNotFound
	}
	return nil
}

// IterEncodedObjects implements storer.EncodedObjectStorer.
func (s *objectStore) IterEncodedObjects(plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	return nil, errUnsupported
}

// AddAlternate implements storer.EncodedObjectStorer.
func (s *objectStore) AddAlternate(string) error { return errUnsupported }
