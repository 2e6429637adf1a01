package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ksctl/gitops/internal/atomicfile"
)

// Volume is a Store in a folder that one process writes. Each content is stored once, in a file
// named after its hash.
type Volume struct {
	dir, baseURL string
	limit        int64

	mu sync.Mutex
	// used is the size of all files, in bytes.
	used int64
}

// NewVolume returns a Volume in a folder, which is created if it does not exist. The URLs of its
// files begin with baseURL. The files have at most limit bytes together; 0 is no limit.
func NewVolume(dir, baseURL string, limit int64) (*Volume, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the files: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of the files: %w", err)
	}
	v := &Volume{dir: dir, baseURL: strings.TrimRight(baseURL, "/"), limit: limit}
	for _, e := range entries {
		if !hashPattern.MatchString(e.Name()) {
			// A process that was killed left it, or it is a folder of the file system.
			if strings.HasPrefix(e.Name(), ".new-") {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("reading the folder of the files: %w", err)
		}
		v.used += info.Size()
	}
	return v, nil
}

func (v *Volume) path(f File) string { return filepath.Join(v.dir, f.SHA256) }

// URL implements Store.
func (v *Volume) URL(f File) string { return v.baseURL + "/" + f.SHA256 + "/" + f.Name }

// Put implements Store. The file is on the disk when Put returns.
func (v *Volume) Put(_ context.Context, name string, content []byte) (File, error) {
	f, err := newFile(name, content)
	if err != nil {
		return f, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	stored, err := os.ReadFile(v.path(f))
	if err == nil && verify(f, stored) == nil {
		now := time.Now()
		return f, os.Chtimes(v.path(f), now, now)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	added := int64(len(content) - len(stored))
	if v.limit > 0 && v.used+added > v.limit {
		return f, fmt.Errorf("%w: %d of %d bytes are used", ErrFull, v.used, v.limit)
	}
	if err := v.write(f, content); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return f, err
	}
	v.used += added
	return f, nil
}

// write writes a file, and its entry in the folder.
func (v *Volume) write(f File, content []byte) error {
	if err := atomicfile.Write(v.path(f), content, 0o400); err != nil {
		return err
	}
	folder, err := os.Open(v.dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Get implements Store.
func (v *Volume) Get(_ context.Context, f File) ([]byte, error) {
	if !f.valid() {
		return nil, ErrNotFound
	}
	content, err := os.ReadFile(v.path(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return content, verify(f, content)
}

// All implements Store.
func (v *Volume) All(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		entries, err := os.ReadDir(v.dir)
		if err != nil {
			yield(Info{}, err)
			return
		}
		for _, e := range entries {
			if !hashPattern.MatchString(e.Name()) {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(Info{File: File{SHA256: e.Name()}, Size: info.Size(), Modified: info.ModTime()}, nil) {
				return
			}
		}
	}
}

// Delete implements Store.
func (v *Volume) Delete(_ context.Context, i Info) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	info, err := os.Stat(v.path(i.File))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(i.Modified) {
		return nil
	}
	if err == nil {
		err = os.Remove(v.path(i.File))
	}
	if err == nil {
		v.used -= info.Size()
	}
	return err
}
