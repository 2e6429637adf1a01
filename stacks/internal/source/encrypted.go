package source

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// EncryptedFile is an encrypted file that was read without its decrypted content, and the component
// that it was read for.
type EncryptedFile struct{ File, Component string }

// encryptedFiles records which of the files that were read are encrypted. It is safe for concurrent
// use.
type encryptedFiles struct {
	mu sync.Mutex
	// plain is the decrypted content by path.
	plain map[string][]byte
	// component is the one that files are being read for.
	component string
	// undecrypted are the encrypted files that were read without their decrypted content;
	// decrypted are the paths of those read with it.
	undecrypted map[EncryptedFile]bool
	decrypted   map[string]bool
}

// SetDecrypted sets the decrypted content of encrypted files, by path. Files that are not encrypted
// keep their own content.
func (t *Tree) SetDecrypted(plain map[string][]byte) {
	t.encrypted.mu.Lock()
	defer t.encrypted.mu.Unlock()
	t.encrypted.plain = plain
}

// SetComponent sets the component that files are read for from now on.
func (t *Tree) SetComponent(component string) {
	t.encrypted.mu.Lock()
	defer t.encrypted.mu.Unlock()
	t.encrypted.component = component
}

// EncryptedFiles returns the encrypted files that were read without their decrypted content,
// sorted.
func (t *Tree) EncryptedFiles() []EncryptedFile {
	t.encrypted.mu.Lock()
	defer t.encrypted.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.encrypted.undecrypted), func(a, b EncryptedFile) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Component, b.Component))
	})
}

// DecryptedFiles returns the encrypted files that were read with their decrypted content, sorted.
func (t *Tree) DecryptedFiles() []string {
	t.encrypted.mu.Lock()
	defer t.encrypted.mu.Unlock()
	return slices.Sorted(maps.Keys(t.encrypted.decrypted))
}

// content returns the decrypted content of a file if it is encrypted and SetDecrypted has it, and
// stored otherwise. It returns an error for more than limit bytes.
func (s *encryptedFiles) content(name string, stored []byte, limit int64) ([]byte, error) {
	if _, encrypted := sops.Detect(name, stored); !encrypted {
		return stored, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name = path.Clean(name)
	plain, given := s.plain[name]
	if !given {
		s.undecrypted[EncryptedFile{File: name, Component: s.component}] = true
		return stored, nil
	}
	if int64(len(plain)) > limit {
		return nil, problem.Errorf(name, 0, "the file has %d bytes once decrypted; %d are allowed", len(plain), limit)
	}
	s.decrypted[name] = true
	return slices.Clone(plain), nil
}
