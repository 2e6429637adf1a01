package artifact

import "cmp"

// Limits bounds the size of one artifact. A zero field takes the default.
type Limits struct {
	// DownloadBytes is the maximum size of the tarball.
	DownloadBytes int64
	// UnpackedBytes is the maximum total size of all files.
	UnpackedBytes int64
	// FileBytes is the maximum size of one file.
	FileBytes int64
	// Files is the maximum number of files and directories together.
	Files int
	// Depth is the maximum number of elements in a path.
	Depth int
}

// DefaultLimits returns limits that are generous for stacks and small for a controller.
func DefaultLimits() Limits { return Limits{}.WithDefaults() }

// WithDefaults returns the limits with defaults for the fields that are zero.
func (l Limits) WithDefaults() Limits {
	return Limits{
		DownloadBytes: cmp.Or(l.DownloadBytes, 128<<20),
		UnpackedBytes: cmp.Or(l.UnpackedBytes, 256<<20),
		FileBytes:     cmp.Or(l.FileBytes, 64<<20),
		Files:         cmp.Or(l.Files, 50_000),
		Depth:         cmp.Or(l.Depth, 64),
	}
}

// usage counts the files and bytes of a tree, and compares them with the limits.
type usage struct {
	limits Limits
	files  int
	bytes  int64
}

// addEntry counts one more file or directory.
func (t *usage) addEntry() error {
	t.files++
	if t.files > t.limits.Files {
		return newError(TooManyFiles, "", "the tree has more than %d files and directories", t.limits.Files)
	}
	return nil
}

// addFileBytes counts the content of a file, before the content is read.
func (t *usage) addFileBytes(name string, size int64) error {
	if size < 0 {
		return newError(Malformed, name, "the file has a negative size")
	}
	if size > t.limits.FileBytes {
		return newError(TooLarge, name, "the file has %d bytes, at most %d are allowed", size, t.limits.FileBytes)
	}
	t.bytes += size
	if t.bytes > t.limits.UnpackedBytes {
		return newError(TooLarge, name, "with this file the tree has more than the %d bytes allowed",
			t.limits.UnpackedBytes)
	}
	return nil
}
