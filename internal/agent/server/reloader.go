package server

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// stale is how long it is believed that files have not changed. They are mounted from a Secret, and
// are replaced there by names, so that neither their times nor watches of them can be relied on.
const stale = time.Second

// fresh is what is made of files. It is made anew when they change; while what they hold is
// of no use, what was made before counts.
type fresh[T any] struct {
	files []string
	parse func(contents [][]byte) (T, error)
	clock clock.PassiveClock
	log   logr.Logger

	mu       sync.Mutex
	checked  time.Time
	contents [][]byte
	value    T
}

// newFresh reads files for the first time, when they have to be of use.
func newFresh[T any](c clock.PassiveClock, log logr.Logger, parse func([][]byte) (T, error), files ...string) (*fresh[T], error) {
	f := &fresh[T]{files: files, parse: parse, clock: c, log: log, checked: c.Now()}
	contents, err := f.read()
	if err != nil {
		return nil, err
	}
	f.contents = contents
	if f.value, err = parse(contents); err != nil {
		return nil, fmt.Errorf("%s: %w", files[0], err)
	}
	return f, nil
}

func (f *fresh[T]) read() ([][]byte, error) {
	out := make([][]byte, len(f.files))
	for i, path := range f.files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out[i] = data
	}
	return out, nil
}

// get returns what the files hold by now.
func (f *fresh[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if now.Sub(f.checked) < stale {
		return f.value
	}
	f.checked = now
	contents, err := f.read()
	if err != nil {
		f.log.Error(err, "can't read a file again; what it held before counts")
		return f.value
	}
	if slices.EqualFunc(contents, f.contents, bytes.Equal) {
		return f.value
	}
	f.contents = contents
	value, err := f.parse(contents)
	if err != nil {
		f.log.Error(err, "a file has changed and is of no use; what it held before counts", "file", f.files[0])
		return f.value
	}
	f.value = value
	f.log.Info("a file has changed, and counts from now on", "file", f.files[0])
	return f.value
}
