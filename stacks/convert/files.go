package convert

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Write writes the files below the root of the repository. It replaces no file.
func (r *Result) Write(root string) error {
	dir, err := os.OpenRoot(root) // no symbolic link leads out of it
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names := slices.Sorted(maps.Keys(r.Files))
	for _, name := range names {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s is outside of the repository; nothing was written", name)
		}
		if _, err := dir.Lstat(name); err == nil {
			return fmt.Errorf("%s exists; nothing was written", name)
		}
	}
	for _, name := range names {
		if err := dir.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		file, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err = file.Write(r.Files[name]); err != nil {
			_ = file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file of the working copy, with its folders.
func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// copyRepository copies the files of a working tree, without those of Git.
func copyRepository(from, to string) error {
	var links []string
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(file)
			if err != nil {
				return err
			}
			if filepath.IsAbs(link) || !filepath.IsLocal(filepath.Join(filepath.Dir(rel), link)) {
				return nil // it leaves the repository
			}
			links = append(links, target)
			return os.Symlink(link, target)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
	for _, link := range links { // one may leave it through another one
		at, evalErr := filepath.EvalSymlinks(link)
		rel, relErr := filepath.Rel(to, at)
		if err == nil && (evalErr != nil || relErr != nil || !filepath.IsLocal(rel)) {
			err = os.Remove(link)
		}
	}
	return err
}
