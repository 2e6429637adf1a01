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

// maxCachedDigests is the maximum number of entries in a digestCache.
const maxCachedDigests = 10_000

// digestCache stores the digests of resolved charts on disk, one file per chart, named by its cache
// key. Losing an entry costs one request: read and write errors are ignored, and the chart is
// resolved again.
type digestCache struct {
	dir string
	mu  sync.Mutex
}

func openDigestCache(dir string) (*digestCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &digestCache{dir: dir}, nil
}

func (r *digestCache) get(key string) (digest string, ok bool) {
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
	_ = os.Chtimes(file, now, now) // mark as used: prune deletes the least recently used
	return digest, true
}

func (r *digestCache) put(key, digest string) {
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
	r.prune(maxCachedDigests)
}

// prune deletes the least recently used entries if there are more than keep, down to 90 % of keep.
// The caller holds the lock.
func (r *digestCache) prune(keep int) {
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
