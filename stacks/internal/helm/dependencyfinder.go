package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

const (
	// maxMetadataFile is the maximum size in bytes of a Chart.yaml or Chart.lock that a
	// DependencyFinder reads; maxMetadataTotal is the maximum of all of them.
	maxMetadataFile, maxMetadataTotal = 1 << 20, 8 << 20
)

// DependencyFinder finds the dependencies to fetch for charts in a source. Its cost for all charts
// together is bounded, because it runs in the process that fetches. A stack must not be able to
// exhaust that process, unlike a render worker.
type DependencyFinder struct {
	tree   *source.Tree
	limits Limits
	// metadataBytes and archiveBytes are the remaining bytes to read of Chart.yaml and Chart.lock
	// files, and of unpacked archives.
	metadataBytes, archiveBytes int64
}

// NewDependencyFinder returns a DependencyFinder for the charts in a source.
func NewDependencyFinder(tree *source.Tree, limits Limits) *DependencyFinder {
	limits = limits.orDefaults()
	return &DependencyFinder{tree: tree, limits: limits, metadataBytes: maxMetadataTotal, archiveBytes: limits.Bytes}
}

// Required returns the charts to fetch for the chart in a folder, whatever the values are. They are
// the same as the RequiredDependencies after Open. Required checks only the dependencies; Open
// reports all other errors of the chart.
func (l *DependencyFinder) Required(dir string) ([]Dependency, error) {
	if !l.tree.IsDir(dir) {
		return nil, nil // an archive must include its dependencies
	}
	found, err := l.missing(dir)
	if err != nil {
		return nil, err
	}
	return required(found), nil
}

func (l *DependencyFinder) missing(dir string) ([]missingDependency, error) {
	head, lock, err := l.readMetadata(dir)
	if err != nil {
		return nil, err
	}
	if len(head.Metadata.Dependencies) == 0 {
		return nil, nil
	}
	have, err := l.vendoredCharts(dir)
	if err != nil {
		return nil, err
	}
	return resolveMissing(dir, head, lock, have)
}

// readMetadata reads Chart.yaml and the lock file of a chart. lock is the name of the lock file,
// even if the file does not exist.
func (l *DependencyFinder) readMetadata(dir string) (head *chart.Chart, lock string, err error) {
	var files []*archive.BufferedFile
	read := func(name string) error {
		data, err := l.read(path.Join(dir, name))
		if err == nil {
			files = append(files, &archive.BufferedFile{Name: name, Data: data})
			head, err = loadMetadata(path.Join(dir, name), files)
		}
		return err
	}
	if err := read("Chart.yaml"); err != nil {
		return nil, "", err
	}
	names := []string{"Chart.lock"}
	if head.Metadata.APIVersion == chart.APIVersionV1 {
		names = []string{"requirements.yaml", "requirements.lock"}
	}
	for _, name := range names {
		if !l.tree.IsFile(path.Join(dir, name)) {
			continue
		}
		if err := read(name); err != nil {
			return nil, "", err
		}
	}
	return head, names[len(names)-1], nil
}

// read reads a metadata file of a chart.
func (l *DependencyFinder) read(file string) ([]byte, error) {
	data, err := l.tree.Read(file, min(l.metadataBytes, maxMetadataFile))
	l.metadataBytes -= int64(len(data))
	return data, err
}

// loadMetadata loads the files with Helm. The last file is new and must not have YAML aliases,
// because their expansion can be many times as large as the file.
func loadMetadata(file string, files []*archive.BufferedFile) (head *chart.Chart, err error) {
	last := files[len(files)-1]
	last.Data = bytes.TrimPrefix(last.Data, utf8BOM)
	root, err := document.ParseSingle(file, last.Data)
	if err != nil {
		return nil, err
	}
	if line := firstAlias(root); line > 0 {
		return nil, problem.Errorf(file, line,
			"this is a YAML alias, which is not allowed in a chart that does not vendor its dependencies; replace it "+
				"by its value")
	}
	defer func() {
		if v := recover(); v != nil {
			head, err = nil, problem.Errorf(file, 0, "the chart cannot be loaded: the parser panicked: %v", v)
		}
	}()
	if head, err = loader.LoadFiles(files); err != nil {
		return nil, problem.Errorf(file, 0, "the chart cannot be loaded: %w", err)
	}
	return head, nil
}

// firstAlias returns the line of the first alias, or 0 if there is none.
func firstAlias(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		return n.Line
	}
	for _, c := range n.Content {
		if line := firstAlias(c); line > 0 {
			return line
		}
	}
	return 0
}

// vendoredCharts returns the names of the charts in the folder charts/ of a chart.
func (l *DependencyFinder) vendoredCharts(dir string) ([]string, error) {
	tree, folder := l.tree, path.Join(dir, "charts")
	info, err := tree.Stat(folder)
	if err != nil || !info.IsDir() {
		return nil, nil //nolint:nilerr // there is no folder charts/
	}
	rules, err := ignoreRules(tree, dir)
	if err != nil || rules.Ignore("charts", info) {
		return nil, err
	}
	entries, err := tree.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		file := path.Join(folder, e.Name())
		info, err := tree.Stat(file)
		if err != nil || strings.ContainsAny(e.Name()[:1], "_.") || rules.Ignore("charts/"+e.Name(), info) {
			continue
		}
		var data []byte
		switch {
		case info.IsDir() && tree.IsFile(path.Join(file, "Chart.yaml")):
			file = path.Join(file, "Chart.yaml")
			data, err = l.read(file)
		case info.Mode().IsRegular() && path.Ext(e.Name()) == ".tgz":
			data, err = l.readArchiveMetadata(file)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		sub, err := loadMetadata(file, []*archive.BufferedFile{{Name: "Chart.yaml", Data: data}})
		if err != nil {
			return nil, err
		}
		out = append(out, sub.Name())
	}
	return out, nil
}

// readArchiveMetadata returns the Chart.yaml in an archive.
func (l *DependencyFinder) readArchiveMetadata(file string) ([]byte, error) {
	data, err := l.tree.Read(file, source.MaxFile)
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, notArchiveError(file, err)
	}
	bounded := &io.LimitedReader{R: zr, N: l.archiveBytes}
	defer func() { l.archiveBytes = bounded.N }()
	for files := tar.NewReader(bounded); ; {
		header, err := files.Next()
		switch {
		case bounded.N <= 0:
			return nil, notArchiveError(file,
				fmt.Errorf("unpacked, the vendored archives have more than %d bytes (--chart-max-bytes)",
					l.limits.Bytes))
		case errors.Is(err, io.EOF):
			return nil, notArchiveError(file, errors.New("there is no Chart.yaml"))
		case err != nil:
			return nil, notArchiveError(file, err)
		}
		if _, name, _ := strings.Cut(header.Name, "/"); path.Clean(name) != "Chart.yaml" {
			continue
		}
		most := min(l.metadataBytes, maxMetadataFile)
		head, err := io.ReadAll(io.LimitReader(files, most+1))
		l.metadataBytes -= int64(len(head))
		if err == nil && int64(len(head)) > most {
			err = fmt.Errorf("its Chart.yaml has more than %d bytes", most)
		}
		if err != nil {
			return nil, notArchiveError(file, err)
		}
		return head, nil
	}
}
