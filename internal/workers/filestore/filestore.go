// Package filestore keeps the files of worker scripts under the hash of their content, on a volume
// or in a bucket of S3. A file never changes: its URL stands for one content.
package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"path"
	"regexp"
	"time"
)

// ErrNotFound means that there is no such file.
var ErrNotFound = errors.New("the file does not exist")

// ErrFull means that there is no room for another file.
var ErrFull = errors.New("the volume of the files is full")

// File is a file with a content.
type File struct {
	// SHA256 is the hash of the content, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Name is the last segment of the URL. It depends on what uses the content.
	Name string `json:"name"`
}

// Info describes a stored file.
type Info struct {
	// File has no name where the content is stored once for all names.
	File
	Size int64
	// Modified is when the file was last put.
	Modified time.Time
}

// Store keeps files. Its methods can be called concurrently.
type Store interface {
	// Put stores a content under its hash, also if it is stored already. The error is ErrFull if
	// there is no room.
	Put(ctx context.Context, name string, content []byte) (File, error)
	// Get returns a content, which has the hash. The error is ErrNotFound if it is not stored.
	Get(ctx context.Context, f File) ([]byte, error)
	// URL returns the URL that a file is fetched from.
	URL(f File) string
	// All yields every stored file. The first error is the last pair.
	All(ctx context.Context) iter.Seq2[Info, error]
	// Delete deletes a file that All yielded, unless it was put again meanwhile.
	Delete(ctx context.Context, i Info) error
}

var (
	hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// ValidName reports whether a file can have a name.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// ParseURL returns the file of a URL that a Store returned, whatever its base was. It returns false
// for other URLs.
func ParseURL(rawURL string) (File, bool) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return File{}, false
	}
	f := File{SHA256: path.Base(path.Dir(u.Path)), Name: path.Base(u.Path)}
	return f, f.valid()
}

func (f File) valid() bool { return hashPattern.MatchString(f.SHA256) && ValidName(f.Name) }

// newFile returns the file with a content.
func newFile(name string, content []byte) (File, error) {
	if !ValidName(name) {
		return File{}, fmt.Errorf("%q is no name of a file", name)
	}
	return File{SHA256: hash(content), Name: name}, nil
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// verify returns an error unless the content is that of the file.
func verify(f File, content []byte) error {
	if got := hash(content); got != f.SHA256 {
		return fmt.Errorf("file %s/%s: the stored content has the hash %s: upload the script again", f.SHA256, f.Name,
			got)
	}
	return nil
}
