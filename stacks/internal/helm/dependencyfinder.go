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
	// maxHead bounds a Chart.yaml and a Chart.lock, in bytes, where dependencies are
	// looked for; maxHeads all of them.
	maxHead, maxHeads = 1 << 20, 8 << 20
)

// Look finds what charts in a source need, all of them at a bounded cost: it is for
// the process that fetches, and not for one that a stack may bring down.
type Look struct {
	tree   *source.Tree
	limits Limits
	// heads and packed are how many bytes it may still read of Chart.yaml and
	// Chart.lock, and of archives, unpacked.
	heads, packed int64
}

// NewLook looks at the charts in a source.
func NewLook(tree *source.Tree, limits Limits) *Look {
	limits = limits.orDefaults()
	return &Look{tree: tree, limits: limits, heads: maxHeads, packed: limits.Bytes}
}

// Needed are the charts of repositories that the chart in a folder needs, as Open
// finds them. What is wrong with the rest of the chart is Open's to say.
func (l *Look) Needed(dir string) ([]Dependency, error) {
	if !l.tree.IsDir(dir) {
		return nil, nil // an archive has to bring them
	}
	found, err := l.lacking(dir)
	if err != nil {
		return nil, err
	}
	return found.remote, nil
}

func (l *Look) lacking(dir string) (*lacks, error) {
	head, lock, err := l.readHead(dir)
	if err != nil {
		return nil, err
	}
	if len(head.Metadata.Dependencies) == 0 {
		return &lacks{}, nil
	}
	have, err := l.brought(dir)
	if err != nil {
		return nil, err
	}
	return decide(dir, head, lock, have)
}

// readHead reads what a chart says of itself and what it locked, and what the file
// is called that has the latter.
func (l *Look) readHead(dir string) (head *chart.Chart, lock string, err error) {
	var files []*archive.BufferedFile
	read := func(name string) error {
		data, err := l.read(path.Join(dir, name))
		if err == nil {
			files = append(files, &archive.BufferedFile{Name: name, Data: data})
			head, err = loadHead(path.Join(dir, name), files)
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

// read reads what a chart says of itself.
func (l *Look) read(file string) ([]byte, error) {
	data, err := l.tree.Read(file, min(l.heads, maxHead))
	l.heads -= int64(len(data))
	return data, err
}

// loadHead has Helm read the files, the last of which is new. That one must have no
// aliases: what they stand for can be many times as large as the file.
func loadHead(file string, files []*archive.BufferedFile) (head *chart.Chart, err error) {
	last := files[len(files)-1]
	last.Data = bytes.TrimPrefix(last.Data, utf8Mark)
	root, err := document.Single(file, last.Data)
	if err != nil {
		return nil, err
	}
	if line := alias(root); line > 0 {
		return nil, &problem.Error{File: file, Line: line, Message: "this is a YAML alias, which is not taken in a chart that does not bring its dependencies; write what it stands for"}
	}
	defer func() {
		if v := recover(); v != nil {
			head, err = nil, &problem.Error{File: file, Message: fmt.Sprintf("the chart cannot be loaded: the parser gave up: %v", v)}
		}
	}()
	if head, err = loader.LoadFiles(files); err != nil {
		return nil, &problem.Error{File: file, Message: "the chart cannot be loaded: " + err.Error(), Err: err}
	}
	return head, nil
}

// alias is the line of the first one, 0 if there is none.
func alias(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		return n.Line
	}
	for _, c := range n.Content {
		if line := alias(c); line > 0 {
			return line
		}
	}
	return 0
}

// brought are the names of the charts in the folder charts/ of a chart.
func (l *Look) brought(dir string) ([]string, error) {
	tree, folder := l.tree, path.Join(dir, "charts")
	info, err := tree.Stat(folder)
	if err != nil || !info.IsDir() {
		return nil, nil //nolint:nilerr // it is not there
	}
	rules, err := rulesOf(tree, dir)
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
			data, err = l.packedHead(file)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		sub, err := loadHead(file, []*archive.BufferedFile{{Name: "Chart.yaml", Data: data}})
		if err != nil {
			return nil, err
		}
		out = append(out, sub.Name())
	}
	return out, nil
}

// packedHead is the Chart.yaml of an archive.
func (l *Look) packedHead(file string) ([]byte, error) {
	data, err := l.tree.Read(file, source.MaxFile)
	if err != nil {
		return nil, err
	}
	refuse := func(err error) error {
		return &problem.Error{File: file, Message: "this is not a chart archive: " + err.Error(), Err: err}
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, refuse(err)
	}
	bounded := &io.LimitedReader{R: zr, N: l.packed}
	defer func() { l.packed = bounded.N }()
	for files := tar.NewReader(bounded); ; {
		header, err := files.Next()
		switch {
		case bounded.N <= 0:
			return nil, refuse(fmt.Errorf("unpacked, it and those before it have more than %d bytes (--chart-max-bytes)", l.limits.Bytes))
		case errors.Is(err, io.EOF):
			return nil, refuse(errors.New("there is no Chart.yaml"))
		case err != nil:
			return nil, refuse(err)
		}
		if _, name, _ := strings.Cut(header.Name, "/"); path.Clean(name) != "Chart.yaml" {
			continue
		}
		most := min(l.heads, maxHead)
		head, err := io.ReadAll(io.LimitReader(files, most+1))
		l.heads -= int64(len(head))
		if err == nil && int64(len(head)) > most {
			err = fmt.Errorf("its Chart.yaml has more than %d bytes", most)
		}
		if err != nil {
			return nil, refuse(err)
		}
		return head, nil
	}
}
