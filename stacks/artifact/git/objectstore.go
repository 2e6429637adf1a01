package git

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	gitobject "github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// objectStore stores objects sequentially in a file. The pack parser writes objects to it and
// reads the bases of deltas from it.
type objectStore struct {
	// EncodedObjectStorer is nil: the parser and the encoder of packs call only the methods below.
	storer.EncodedObjectStorer
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

func newStore(ctx context.Context, name string) (*objectStore, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &objectStore{ctx: ctx, file: file, w: bufio.NewWriterSize(file, 256<<10),
		objects: map[plumbing.Hash]storedObject{}}, nil
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

// commit decodes a commit.
func (s *objectStore) commit(h plumbing.Hash) (*gitobject.Commit, error) {
	o, err := s.EncodedObject(plumbing.CommitObject, h)
	if err != nil {
		return nil, wrapError(CommitNotFound, err, "%s is not a commit", h)
	}
	c := &gitobject.Commit{}
	if err := c.Decode(o); err != nil {
		return nil, wrapError(OperationFailed, err, "commit %s can't be read", h)
	}
	return c, nil
}

// treeEntries decodes a tree.
func (s *objectStore) treeEntries(h plumbing.Hash) ([]gitobject.TreeEntry, error) {
	o, err := s.EncodedObject(plumbing.TreeObject, h)
	if err != nil {
		return nil, err
	}
	var t gitobject.Tree
	err = t.Decode(o)
	return t.Entries, err
}
