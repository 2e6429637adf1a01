package storage

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// DefaultBytes is what artifacts may take on disk.
const DefaultBytes = 2 << 30

// FullReason is the reason of conditions that a FullError gives.
const FullReason = "StorageFull"

// book is what a storage holds, by path.
type book struct {
	max int64

	mu    sync.Mutex
	files map[string]*held
	total int64
	clock int64
}

// held is one artifact.
type held struct {
	size int64
	// used orders artifacts: a larger number was used later.
	used int64
	// current is true for the one that the status of its owner names.
	current bool
	// checked is true once this process knows that the content is right.
	checked bool
}

// FullError says that artifacts take all the room that they may.
type FullError struct {
	// Need is the size of the artifact that has no room, Max that of all.
	Need, Max int64
}

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("there is no room for an artifact of %d bytes: those in use take the rest of the %d bytes that sources may store; raise --source-storage-bytes, "+
		"ignore more files with spec.ignore of a KsctlSource, or delete sources or installs that publish", e.Need, e.Max)
}

// scan takes over what an earlier process left.
func (b *book) scan(root fs.FS) error {
	type found struct {
		name string
		info fs.FileInfo
	}
	var all []found
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what can't be read is found out when it is used
		}
		if info, err := d.Info(); err == nil {
			all = append(all, found{name, info})
		}
		return nil
	})
	slices.SortStableFunc(all, func(x, y found) int { return x.info.ModTime().Compare(y.info.ModTime()) })
	for _, f := range all {
		b.add(f.name, f.info.Size())
	}
	return err
}

// add notes an artifact.
func (b *book) add(name string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.files[name]; old != nil {
		b.total -= old.size
	}
	b.clock++
	b.files[name] = &held{size: size, used: b.clock}
	b.total += size
}

// drop forgets an artifact.
func (b *book) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.files[name]; old != nil {
		b.total -= old.size
		delete(b.files, name)
	}
}

func (b *book) isChecked(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[name] != nil && b.files[name].checked
}

// use notes that an artifact is right and is what its owner offers.
func (b *book) use(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, h := range b.files {
		if path.Dir(other) == path.Dir(name) {
			h.current = other == name
		}
	}
	if h := b.files[name]; h != nil {
		b.clock++
		h.used, h.checked = b.clock, true
	}
}

// evictable are the artifacts to remove so that there is room for one more in a
// folder: such as no owner offers, the longest unused first, and what that
// owner itself offered until now. An error if that does not suffice.
func (b *book) evictable(size int64, folder string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name, h := range b.files {
		if !h.current || strings.HasPrefix(name, folder+"/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int {
		if cx, cy := b.files[x].current, b.files[y].current; cx != cy {
			if cy {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.files[x].used, b.files[y].used)
	})
	left := b.total + size
	for i, name := range names {
		if left <= b.max {
			return names[:i], nil
		}
		left -= b.files[name].size
	}
	if left > b.max {
		return nil, &FullError{Need: size, Max: b.max}
	}
	return names, nil
}
