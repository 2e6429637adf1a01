// Package artifacts is a fake Flux source controller: it serves file trees as .tar.gz over HTTP on
// loopback, and describes them in the form of a Flux source's status.artifact. The archives are
// deterministic: the same tree gives the same bytes, hence the same digest.
package artifacts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"path"
	"testing/fstest"
)

// Files returns a tree of the given paths and contents.
func Files(contents map[string]string) fs.FS {
	tree := fstest.MapFS{}
	for name, content := range contents {
		tree[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	return tree
}

// Archive packs a tree as a gzipped tar, ordered by name, without times and owners. Like Flux, it
// packs regular files and folders only. Any other entry is an error, because a test that needs one
// has to build the archive itself: see [Server.PublishArchive].
func Archive(tree fs.FS) ([]byte, error) {
	var buffer bytes.Buffer
	gz := gzip.NewWriter(&buffer)
	out := tar.NewWriter(gz)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return pack(out, tree, name, entry)
	})
	if err != nil {
		return nil, fmt.Errorf("packing the tree: %w", err)
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("finishing the archive: %w", err)
	}
	if err := gz.Close(); err != nil {
		return nil, fmt.Errorf("finishing the compression: %w", err)
	}
	return buffer.Bytes(), nil
}

func pack(out *tar.Writer, tree fs.FS, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case entry.IsDir():
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Clean(name) + "/", Mode: 0o755})
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a folder (%s)", name, info.Mode())
	}
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	// Only the executable bit is significant; the other bits depend on the umask.
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))})
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
