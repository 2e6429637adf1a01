package artifact

// Limits bound what one artifact may cost. A zero field takes the default.
type Limits struct {
	// DownloadBytes is the largest tarball.
	DownloadBytes int64
	// UnpackedBytes is the largest sum of all files.
	UnpackedBytes int64
	// FileBytes is the largest single file.
	FileBytes int64
	// Files is the largest number of files and folders together.
	Files int
	// Depth is the largest number of elements in a path.
	Depth int
}

// DefaultLimits are generous for stacks and small for a controller.
func DefaultLimits() Limits {
	return Limits{
		DownloadBytes: 128 << 20,
		UnpackedBytes: 256 << 20,
		FileBytes:     64 << 20,
		Files:         50_000,
		Depth:         64,
	}
}

// WithDefaults fills in the fields that are zero.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	if l.DownloadBytes == 0 {
		l.DownloadBytes = d.DownloadBytes
	}
	if l.UnpackedBytes == 0 {
		l.UnpackedBytes = d.UnpackedBytes
	}
	if l.FileBytes == 0 {
		l.FileBytes = d.FileBytes
	}
	if l.Files == 0 {
		l.Files = d.Files
	}
	if l.Depth == 0 {
		l.Depth = d.Depth
	}
	return l
}

// tally counts a tree against its limits.
type tally struct {
	limits Limits
	files  int
	bytes  int64
}

// entry takes one more file or folder into account.
func (t *tally) entry() error {
	t.files++
	if t.files > t.limits.Files {
		return fail(TooManyFiles, "", "the tree holds more than %d files and folders", t.limits.Files)
	}
	return nil
}

// content takes the content of a file into account, before it is read.
func (t *tally) content(name string, size int64) error {
	if size < 0 {
		return fail(Malformed, name, "negative size")
	}
	if size > t.limits.FileBytes {
		return fail(TooLarge, name, "the file has %d bytes, at most %d are allowed", size, t.limits.FileBytes)
	}
	t.bytes += size
	if t.bytes > t.limits.UnpackedBytes {
		return fail(TooLarge, name, "with this file the tree has more than the %d bytes allowed", t.limits.UnpackedBytes)
	}
	return nil
}
