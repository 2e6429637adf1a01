package source

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// Sealed is an encrypted file that was read as it lies there, and the component that it
// was read for.
type Sealed struct{ File, Component string }

// seal knows which files are encrypted, of those that were read. It is safe for concurrent use.
type seal struct {
	mu        sync.Mutex
	plain     map[string][]byte
	component string
	met       map[Sealed]bool
	opened    map[string]bool
}

// Decrypt gives what encrypted files hold, by their path. No other file is replaced.
func (t *Tree) Decrypt(plain map[string][]byte) {
	t.seal.mu.Lock()
	defer t.seal.mu.Unlock()
	t.seal.plain = plain
}

// For says for which component files are read from now on.
func (t *Tree) For(component string) {
	t.seal.mu.Lock()
	defer t.seal.mu.Unlock()
	t.seal.component = component
}

// Sealed are the encrypted files that were read as they lie there, in order.
func (t *Tree) Sealed() []Sealed {
	t.seal.mu.Lock()
	defer t.seal.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.seal.met), func(a, b Sealed) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Component, b.Component))
	})
}

// Opened are the encrypted files whose content was given and read, in order.
func (t *Tree) Opened() []string {
	t.seal.mu.Lock()
	defer t.seal.mu.Unlock()
	return slices.Sorted(maps.Keys(t.seal.opened))
}

// open is what a file holds, of at most limit bytes.
func (s *seal) open(name string, stored []byte, limit int64) ([]byte, error) {
	if _, encrypted := sops.Detect(name, stored); !encrypted {
		return stored, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name = path.Clean(name)
	plain, given := s.plain[name]
	if !given {
		if s.met == nil {
			s.met = map[Sealed]bool{}
		}
		s.met[Sealed{File: name, Component: s.component}] = true
		return stored, nil
	}
	if int64(len(plain)) > limit {
		return nil, &problem.Error{File: name, Message: fmt.Sprintf("the file has %d bytes once it is decrypted; %d are allowed", len(plain), limit)}
	}
	if s.opened == nil {
		s.opened = map[string]bool{}
	}
	s.opened[name] = true
	return slices.Clone(plain), nil
}
