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

// store keeps objects one after the other in a file. The parser of packs
// writes into it and reads the bases of deltas back.
type store struct {
	ctx     context.Context
	file    *os.File
	w       *bufio.Writer
	end     int64
	objects map[plumbing.Hash]object
}

type object struct {
	kind plumbing.ObjectType
	at   int64
	size int64
}

var _ storer.EncodedObjectStorer = (*store)(nil)

// errUnused is returned by the parts of the interface that no pack needs.
var errUnused = errors.New("not supported by this store")

func newStore(ctx context.Context, name string) (*store, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &store{ctx: ctx, file: file, w: bufio.NewWriterSize(file, 256<<10), objects: map[plumbing.Hash]object{}}, nil
}

func (s *store) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

func (s *store) flush() error {
	if err := s.w.Flush(); err != nil {
		return diskError{err}
	}
	return nil
}

func (s *store) has(h plumbing.Hash) bool {
	_, ok := s.objects[h]
	return ok
}

// content reads an object, which must be of that kind.
func (s *store) content(h plumbing.Hash, kind plumbing.ObjectType) (*io.SectionReader, error) {
	o, ok := s.objects[h]
	if !ok || (kind != plumbing.AnyObject && o.kind != kind) {
		return nil, plumbing.ErrObjectNotFound
	}
	return io.NewSectionReader(s.file, o.at, o.size), nil
}

// NewEncodedObject implements storer.EncodedObjectStorer.
func (s *store) NewEncodedObject() plumbing.EncodedObject { return &plumbing.MemoryObject{} }

// SetEncodedObject implements storer.EncodedObjectStorer.
func (s *store) SetEncodedObject(o plumbing.EncodedObject) (plumbing.Hash, error) {
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
	s.objects[h] = object{kind: o.Type(), at: s.end, size: n}
	s.end += n
	return h, nil
}

// EncodedObject implements storer.EncodedObjectStorer.
func (s *store) EncodedObject(kind plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
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
func (s *store) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	o, ok := s.objects[h]
	if !ok {
		return 0, plumbing.ErrObjectNotFound
	}
	return o.size, nil
}

// HasEncodedObject implements storer.EncodedObjectStorer.
func (s *store) HasEncodedObject(h plumbing.Hash) error {
	if !s.has(h) {
		return plumbing.ErrObjectNotFound
	}
	return nil
}

// IterEncodedObjects implements storer.EncodedObjectStorer.
func (s *store) IterEncodedObjects(plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	return nil, errUnused
}

// AddAlternate implements storer.EncodedObjectStorer.
func (s *store) AddAlternate(string) error { return errUnused }
