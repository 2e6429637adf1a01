package git

import (
	"cmp"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Limits bounds the size of one repository. A zero field takes the default, which depends
// on Tree for all fields but RefBytes.
type Limits struct {
	// RefBytes is the maximum size of the list of branches and tags, as sent by the server.
	RefBytes int64
	// PackBytes is the maximum size of a pack, as sent by the server.
	PackBytes int64
	// ObjectBytes is the maximum total size of all objects, uncompressed.
	ObjectBytes int64
	// Objects is the maximum number of objects: blobs, trees, commits and tags.
	Objects int
	// Tree bounds the files of the commit.
	Tree artifact.Limits
}

// WithDefaults returns the limits with defaults for the fields that are zero.
func (l Limits) WithDefaults() Limits {
	l.Tree = l.Tree.WithDefaults()
	return Limits{
		RefBytes:    cmp.Or(l.RefBytes, 32<<20),
		PackBytes:   cmp.Or(l.PackBytes, l.Tree.DownloadBytes),
		ObjectBytes: cmp.Or(l.ObjectBytes, 2*l.Tree.UnpackedBytes),
		Objects:     cmp.Or(l.Objects, 4*l.Tree.Files),
		Tree:        l.Tree,
	}
}
