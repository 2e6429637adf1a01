package helm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// readFolder reads the files of a chart in the source, at most left bytes.
func readFolder(tree *source.Tree, dir string, limits Limits, left *int64) ([]*archive.BufferedFile, error) {
	rules, err := ignoreRules(tree, dir)
	if err != nil {
		return nil, err
	}
	return readFiles(tree, dir, rules, limits, left)
}

// ignoreRules returns the .helmignore rules of a chart.
func ignoreRules(tree *source.Tree, dir string) (*ignore.Rules, error) {
	rules := ignore.Empty()
	if file := path.Join(dir, ignore.HelmIgnore); tree.IsFile(file) {
		data, err := tree.Read(file, 1<<20)
		if err != nil {
			return nil, err
		}
		if rules, err = ignore.Parse(bytes.NewReader(data)); err != nil {
			return nil, problem.Errorf(file, 0, "this is not a valid .helmignore: %w", err)
		}
	}
	rules.AddDefaults()
	return rules, nil
}

// readFiles reads the files below a folder except for those that rules ignore.
func readFiles(tree *source.Tree, dir string, rules *ignore.Rules, limits Limits,
	left *int64) ([]*archive.BufferedFile, error) {
	relative := func(name string) string {
		if dir == "." {
			return name
		}
		return strings.TrimPrefix(name, dir+"/")
	}
	names, err := tree.Files(dir, func(name string, info fs.FileInfo) bool {
		return rules.Ignore(relative(name), info)
	})
	if err != nil {
		return nil, err
	}
	out := make([]*archive.BufferedFile, 0, len(names))
	for _, name := range names {
		data, err := tree.Read(name, source.MaxFile)
		if err != nil {
			return nil, err
		}
		if *left -= int64(len(data)); *left < 0 {
			return nil, problem.Errorf(dir, 0, "%s", limits.tooManyBytes())
		}
		out = append(out, &archive.BufferedFile{Name: relative(name), Data: bytes.TrimPrefix(data, utf8BOM)})
	}
	return out, nil
}

// utf8BOM is the byte order mark that some editors write.
var utf8BOM = []byte("\xef\xbb\xbf")

func readArchive(tree *source.Tree, file string, limits Limits) ([]*archive.BufferedFile, error) {
	data, err := tree.Read(file, source.MaxFile)
	if err != nil {
		return nil, err
	}
	left := limits.Bytes
	files, err := unpack(data, limits, &left)
	if err != nil {
		return nil, notArchiveError(file, err)
	}
	return files, nil
}

func notArchiveError(file string, err error) error {
	return problem.Errorf(file, 0, "this is not a chart archive: %w", err)
}

// unpack reads an archive of at most left bytes. It measures the size first, because the library's
// limit is per archive and not for all archives together.
func unpack(data []byte, limits Limits, left *int64) ([]*archive.BufferedFile, error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	size, err := io.Copy(io.Discard, io.LimitReader(zr, *left+1))
	if err != nil {
		return nil, err
	}
	if *left -= size; *left < 0 {
		return nil, fmt.Errorf("unpacked, %w", limits.tooManyBytes())
	}
	return archive.LoadArchiveFiles(bytes.NewReader(data))
}

// subArchive matches archives of vendored subcharts, at any depth.
var subArchive = regexp.MustCompile(`^((?:charts/[^/]+/)*charts/)([^_.][^/]*)\.tgz$`)

// unpackSubcharts replaces archives of vendored subcharts by their files.
func unpackSubcharts(dir string, files []*archive.BufferedFile, limits Limits) ([]*archive.BufferedFile, error) {
	left := limits.Bytes - sizeOf(files)
	if left < 0 {
		return nil, problem.Errorf(dir, 0, "%s", limits.tooManyBytes())
	}
	var out []*archive.BufferedFile
	for queue := files; len(queue) > 0; queue = queue[1:] {
		f := queue[0]
		if len(out)+len(queue) > limits.Files {
			return nil, problem.Errorf(dir, 0, "the chart has more than %d files (--chart-max-files)", limits.Files)
		}
		m := subArchive.FindStringSubmatch(f.Name)
		if m == nil {
			out = append(out, f)
			continue
		}
		inner, err := unpack(f.Data, limits, &left)
		if err != nil {
			return nil, notArchiveError(path.Join(dir, f.Name), err)
		}
		for _, sub := range inner {
			sub.Name = m[1] + m[2] + "/" + sub.Name
		}
		queue = append(queue[:1:1], append(inner, queue[1:]...)...)
	}
	return out, nil
}

func sizeOf(files []*archive.BufferedFile) (bytes int64) {
	for _, f := range files {
		bytes += int64(len(f.Data))
	}
	return bytes
}
