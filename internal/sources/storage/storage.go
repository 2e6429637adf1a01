package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	extension = ".tar.gz"
	partial   = "tmp-"
)

// Options say where artifacts are kept and served.
type Options struct {
	// Path is the folder that holds artifacts. One process owns it.
	Path string
	// Addr to serve at, such as ":9090".
	Addr string
	// MaxBytes that all artifacts together may take; DefaultBytes when 0.
	// What is being packed comes on top.
	MaxBytes int64
	// AdvAddr is the host, with a port if it is not 80, under which others reach
	// Addr; the machine's own name and Addr's port when empty. Every replica has
	// artifacts of its own, so it must lead to this one and not to any of them.
	AdvAddr string
}

// Storage keeps the artifacts of all spaces in one folder, and serves them.
type Storage struct {
	addr string
	adv  string
	root *os.Root
	dir  string
	book *book
	// placing is held while room is made for an artifact and taken.
	placing sync.Mutex
}

// Open opens the folder, which it makes if need be. What a process that was
// killed left half written is removed, if the disk lets it.
func Open(o Options) (*Storage, error) {
	adv, err := advertised(o.Addr, o.AdvAddr, os.Hostname)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Path, 0o700); err != nil {
		return nil, fmt.Errorf("artifact storage: %w", err)
	}
	root, err := os.OpenRoot(o.Path)
	if err != nil {
		return nil, fmt.Errorf("artifact storage: %w", err)
	}
	s := &Storage{addr: o.Addr, adv: adv, root: root, dir: o.Path, book: &book{max: o.MaxBytes, files: map[string]*held{}}}
	if s.book.max == 0 {
		s.book.max = DefaultBytes
	}
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("artifact storage: %w", err), root.Close())
	}
	for _, d := range found {
		if strings.HasPrefix(d.Name(), partial) {
			_ = root.RemoveAll(d.Name())
		}
	}
	if err := s.book.scan(root.FS()); err != nil {
		return nil, errors.Join(fmt.Errorf("artifact storage: %w", err), root.Close())
	}
	return s, nil
}

// Close gives the folder back. What is in it stays.
func (s *Storage) Close() error { return s.root.Close() }

// advertised is the address that URLs name.
func advertised(addr, adv string, hostname func() (string, error)) (string, error) {
	if adv != "" {
		return adv, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("address to serve artifacts at: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		if host, err = hostname(); err != nil {
			return "", fmt.Errorf("address under which artifacts are reached: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// URL under which a path is served.
func (s *Storage) URL(name string) string { return "http://" + s.adv + "/" + name }

// Space is where the objects of one kind keep their artifacts: a folder for each.
type Space struct {
	*Storage
	name string
}

// Space returns that of a name, which is the first element of its paths.
func (s *Storage) Space(name string) *Space { return &Space{Storage: s, name: name} }

func (s *Space) folder(owner types.NamespacedName) string {
	return path.Join(s.name, owner.Namespace, owner.Name)
}

// PathOf is where the artifact of an owner with that digest is kept.
func (s *Space) PathOf(owner types.NamespacedName, digest string) (string, error) {
	sum, err := artifact.ParseDigest(digest)
	if err != nil {
		return "", err
	}
	return path.Join(s.folder(owner), sum+extension), nil
}

// Has is true when the artifact of an owner with that digest is kept, whole.
// Its content is compared once in the life of a process.
func (s *Space) Has(owner types.NamespacedName, digest string) (bool, error) {
	name, perr := s.PathOf(owner, digest)
	if perr != nil {
		return false, nil // a digest of a kind that we never write
	}
	file, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	if s.book.isChecked(name) {
		s.book.use(name)
		return true, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return false, err
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != digest {
		s.book.drop(name)
		return false, s.root.Remove(name)
	}
	s.book.use(name)
	return true, nil
}

// Store keeps the files of fsys as an artifact of an owner and returns its path.
func (s *Space) Store(ctx context.Context, owner types.NamespacedName, fsys fs.FS, o artifact.PackOptions) (string, artifact.Packed, error) {
	temp, err := os.CreateTemp(s.dir, partial)
	if err != nil {
		return "", artifact.Packed{}, err
	}
	base := path.Base(temp.Name())
	packed, err := artifact.Pack(ctx, temp, fsys, o)
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	var name string
	if err == nil {
		name, err = s.place(owner, base, packed)
	}
	if err != nil {
		_ = s.root.Remove(base)
		return "", artifact.Packed{}, err
	}
	return name, packed, nil
}

func (s *Space) place(owner types.NamespacedName, temp string, packed artifact.Packed) (string, error) {
	name, err := s.PathOf(owner, packed.Digest)
	if err != nil {
		return "", err
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	if s.book.isChecked(name) { // it is there, byte for byte
		s.book.use(name)
		return name, s.root.Remove(temp)
	}
	gone, err := s.book.evictable(packed.Size, s.folder(owner))
	if err != nil {
		return "", err
	}
	for _, old := range gone {
		if err := s.remove(old); err != nil {
			return "", err
		}
	}
	if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return "", err
	}
	if err := s.root.Rename(temp, name); err != nil {
		return "", err
	}
	s.book.add(name, packed.Size)
	s.book.use(name)
	return name, nil
}

func (s *Storage) remove(name string) error {
	if err := s.root.RemoveAll(name); err != nil {
		return err
	}
	s.book.drop(name)
	return nil
}

// Keep removes every artifact of an owner but those of the digests.
func (s *Space) Keep(owner types.NamespacedName, digests ...string) error {
	found, err := fs.ReadDir(s.root.FS(), s.folder(owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range found {
		name := path.Join(s.folder(owner), d.Name())
		if slices.ContainsFunc(digests, func(digest string) bool {
			keep, err := s.PathOf(owner, digest)
			return err == nil && keep == name
		}) {
			continue
		}
		if err := s.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes every artifact of an owner.
func (s *Space) Remove(owner types.NamespacedName) error {
	if err := s.Keep(owner); err != nil {
		return err
	}
	return s.root.RemoveAll(s.folder(owner))
}
