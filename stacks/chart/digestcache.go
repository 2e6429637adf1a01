package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks/artifact"
)

// maxRecords bounds what is remembered of what was resolved.
const maxRecords = 10_000

// records remember the digest of what was resolved, each in a file of its own that
// is named by everything that it depends on. They are worth a request each, no more:
// what can't be read or written is resolved again.
type records struct {
	dir string
	mu  sync.Mutex
}

func openRecords(dir string) (*records, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &records{dir: dir}, nil
}

func (r *records) get(key string) (digest string, ok bool) {
	file := filepath.Join(r.dir, key)
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false
	}
	digest = strings.TrimSpace(string(data))
	if _, err := artifact.ParseDigest(digest); err != nil {
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(file, now, now) // used: others are forgotten first
	return digest, true
}

func (r *records) put(key, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	temp, err := os.CreateTemp(r.dir, "tmp-")
	if err != nil {
		return
	}
	_, err = temp.WriteString(digest + "\n")
	if cerr := temp.Close(); err != nil || cerr != nil || os.Rename(temp.Name(), filepath.Join(r.dir, key)) != nil {
		_ = os.Remove(temp.Name())
		return
	}
	r.prune(maxRecords)
}

// prune forgets those that were unused for longest. The lock is held.
func (r *records) prune(keep int) {
	all, err := os.ReadDir(r.dir)
	if err != nil || len(all) <= keep {
		return
	}
	used := func(e os.DirEntry) time.Time {
		if info, err := e.Info(); err == nil {
			return info.ModTime()
		}
		return time.Time{}
	}
	slices.SortFunc(all, func(a, b os.DirEntry) int { return used(a).Compare(used(b)) })
	for _, e := range all[:len(all)-keep*9/10] {
		_ = os.Remove(filepath.Join(r.dir, e.Name()))
	}
}
