package server

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// recheckInterval is the minimum time between two checks of files for changes. The files are
// usually mounted from a Secret, which is updated by renaming symlinks, so neither their
// modification times nor file watches are reliable. Only tests change it.
var recheckInterval = time.Second

// reloader parses files and parses them again when they change. While changed files are invalid, it
// keeps the previous value.
type reloader[T any] struct {
	files []string
	parse func(contents [][]byte) (T, error)
	log   logr.Logger

	mu        sync.Mutex
	lastCheck time.Time
	contents  [][]byte
	value     T
}

// newReloader reads files for the first time. It returns an error if they are invalid.
func newReloader[T any](log logr.Logger, parse func([][]byte) (T, error), files ...string) (*reloader[T], error) {
	f := &reloader[T]{files: files, parse: parse, log: log, lastCheck: time.Now()}
	var err error
	if f.contents, err = f.read(); err != nil {
		return nil, err
	}
	if f.value, err = parse(f.contents); err != nil {
		return nil, fmt.Errorf("%s: %w", files[0], err)
	}
	return f, nil
}

func (f *reloader[T]) read() ([][]byte, error) {
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

// get returns the value of the current files.
func (f *reloader[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.lastCheck) < recheckInterval {
		return f.value
	}
	f.lastCheck = time.Now()
	contents, err := f.read()
	if err != nil {
		f.log.Error(err, "reloading a file failed; its previous content stays in use")
		return f.value
	}
	if slices.EqualFunc(contents, f.contents, bytes.Equal) {
		return f.value
	}
	f.contents = contents
	value, err := f.parse(contents)
	if err != nil {
		f.log.Error(err, "a changed file is invalid; its previous content stays in use", "file", f.files[0])
		return f.value
	}
	f.value = value
	f.log.Info("reloaded a changed file", "file", f.files[0])
	return f.value
}
