// Package archive packs programs for download. The same files give the same archive, byte for byte.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"time"
)

// File is a file in an archive.
type File struct {
	Name    string
	Mode    int64
	Content []byte
}

// TarGzip packs files into a tar.gz archive, in the given order.
func TarGzip(files []File, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Content)),
			ModTime: modified, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	for _, c := range []io.Closer{w, zipped} {
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// Zip packs files into a zip archive, in the given order. Windows can open it without further
// tools.
func Zip(files []File, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		member, err := w.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: modified.UTC()})
		if err != nil {
			return nil, err
		}
		if _, err := member.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
