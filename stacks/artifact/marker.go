package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

func writeMarker(dir string, size Size) error {
	b, err := json.Marshal(size)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, markerName), b, 0o600)
}

func readMarker(dir string) (size Size, lastUse time.Time, err error) {
	path := filepath.Join(dir, markerName)
	info, err := os.Stat(path)
	if err != nil {
		return size, lastUse, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return size, lastUse, err
	}
	if err := json.Unmarshal(b, &size); err != nil {
		return size, lastUse, err
	}
	if size.Bytes < 0 || size.Files < 0 {
		return size, lastUse, errors.New("negative size")
	}
	return size, info.ModTime(), nil
}

// measure counts the files and bytes of a tree. After a power failure, a file can exist
// without its content.
func measure(ctx context.Context, root string) (Size, error) {
	var size Size
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if path == root {
			return nil
		}
		size.Files++
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return errors.New("not a regular file")
		}
		size.Bytes += info.Size()
		return nil
	})
	return size, err
}

func storageError(err error) error {
	if err == nil {
		return nil
	}
	return wrapError(Storage, err, "updating the cache")
}
