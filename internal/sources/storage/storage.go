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
	extension  = ".tar.gz"
	tempPrefix = "tmp-"
)

// Options configure a Storage.
type Options struct {
	// Path is the folder of the artifacts. Only one process may use it.
	Path string
	// Addr is the address to listen on, such as ":9090".
	Addr string
	// MaxBytes limits the total size of artifacts; 0 means DefaultBytes. Artifacts that are being
	// packed are not counted.
	MaxBytes int64
	// AdvertisedAddr is the host at which others reach Addr, with a port if it is not 80. If it is
	// empty, it is the host name of the machine and the port of Addr. Each replica has its own
	// artifacts, so the address must lead to this replica, not to any of them.
	AdvertisedAddr string
}

// Storage stores the artifacts of all spaces in one folder, and serves them.
type Storage struct {
	addr           string
	advertisedAddr string
	root           *os.Root
	dir            string
	index          *index
	// placeMu serializes evicting artifacts and placing a new one.
	placeMu sync.Mutex
}

// Open opens the folder and creates it if it does not exist. It removes partially written artifacts
// that a killed process left; a failure to remove them is ignored.
func Open(o Options) (*Storage, error) {
	advertisedAddr, err := advertised(o.Addr, o.AdvertisedAddr, os.Hostname)
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
	s := &Storage{addr: o.Addr, advertisedAddr: advertisedAddr, root: root, dir: o.Path,
		index: &index{max: o.MaxBytes, files: map[string]*entry{}}}
	if s.index.max == 0 {
		s.index.max = DefaultBytes
	}
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("artifact storage: %w", err), root.Close())
	}
	for _, d := range found {
		if strings.HasPrefix(d.Name(), tempPrefix) {
			_ = root.RemoveAll(d.Name())
		}
	}
	if err := s.index.scan(root.FS()); err != nil {
		return nil, errors.Join(fmt.Errorf("artifact storage: %w", err), root.Close())
	}
	return s, nil
}

// Close closes the folder. Its content stays.
func (s *Storage) Close() error { return s.root.Close() }

// advertised returns the address for URLs.
func advertised(addr, adv string, hostname func() (string, error)) (string, error) {
	if adv != "" {
		return adv, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("parsing the address to serve artifacts on: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		if host, err = hostname(); err != nil {
			return "", fmt.Errorf("getting the host name to advertise: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// URL returns the URL of a path.
func (s *Storage) URL(name string) string { return "http://" + s.advertisedAddr + "/" + name }

// Space is the part of a Storage for the objects of one kind: one folder per object.
type Space struct {
	*Storage
	name string
}

// Space returns the Space with a name. The name is the first element of its paths.
func (s *Storage) Space(name string) *Space { return &Space{Storage: s, name: name} }

func (s *Space) folder(owner types.NamespacedName) string {
	return path.Join(s.name, owner.Namespace, owner.Name)
}

// PathOf returns the path of an owner's artifact with that digest.
func (s *Space) PathOf(owner types.NamespacedName, digest string) (string, error) {
	sum, err := artifact.ParseDigest(digest)
	if err != nil {
		return "", err
	}
	return path.Join(s.folder(owner), sum+extension), nil
}

// Has reports whether the artifact of an owner with that digest is stored and intact. Each process
// verifies the content once. The artifact becomes the current one of the owner.
func (s *Space) Has(owner types.NamespacedName, digest string) (bool, error) {
	name, perr := s.PathOf(owner, digest)
	if perr != nil {
		return false, nil // a digest algorithm that Store never uses
	}
	file, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	if s.index.isVerified(name) {
		s.index.markCurrent(name)
		return true, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return false, err
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != digest {
		s.index.remove(name)
		return false, s.root.Remove(name)
	}
	s.index.markCurrent(name)
	return true, nil
}

// Store packs the files of fsys into an artifact of an owner and returns its path. The artifact
// becomes the current one of the owner.
func (s *Space) Store(ctx context.Context, owner types.NamespacedName, fsys fs.FS,
	o artifact.PackOptions) (string, artifact.Packed, error) {
	temp, err := os.CreateTemp(s.dir, tempPrefix)
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
	s.placeMu.Lock()
	defer s.placeMu.Unlock()
	if s.index.isVerified(name) { // already stored, and verified
		s.index.markCurrent(name)
		return name, s.root.Remove(temp)
	}
	evicted, err := s.index.evictable(packed.Size, s.folder(owner))
	if err != nil {
		return "", err
	}
	for _, old := range evicted {
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
	s.index.add(name, packed.Size)
	s.index.markCurrent(name)
	return name, nil
}

func (s *Storage) remove(name string) error {
	if err := s.root.RemoveAll(name); err != nil {
		return err
	}
	s.index.remove(name)
	return nil
}

// RemoveExcept removes all artifacts of an owner except those with the digests.
func (s *Space) RemoveExcept(owner types.NamespacedName, digests ...string) error {
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

// Remove removes all artifacts of an owner.
func (s *Space) Remove(owner types.NamespacedName) error {
	if err := s.RemoveExcept(owner); err != nil {
		return err
	}
	return s.root.RemoveAll(s.folder(owner))
}
