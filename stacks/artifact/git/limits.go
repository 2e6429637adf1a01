package git

import (
	"github.com/ksctl/gitops/stacks/artifact"
)

// Limits bound what one repository may cost. A zero field takes the default,
// which for all but RefBytes follows from Tree.
type Limits struct {
	// RefBytes is the longest list of branches and tags, as it is sent.
	RefBytes int64
	// PackBytes is the largest pack, as it is sent.
	PackBytes int64
	// ObjectBytes is the largest sum of all objects, uncompressed.
	ObjectBytes int64
	// Objects is the largest number of objects: files, folders, commits.
	Objects int
	// Tree bounds the files of the commit.
	Tree artifact.Limits
}

// WithDefaults fills in the fields that are zero.
func (l Limits) WithDefaults() Limits {
	l.Tree = l.Tree.WithDefaults()
	if l.RefBytes == 0 {
		l.RefBytes = 32 << 20
	}
	if l.PackBytes == 0 {
		l.PackBytes = l.Tree.DownloadBytes
	}
	if l.ObjectBytes == 0 {
		l.ObjectBytes = 2 * l.Tree.UnpackedBytes
	}
	if l.Objects == 0 {
		l.Objects = 4 * l.Tree.Files
	}
	return l
}
