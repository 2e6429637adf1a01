package helm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Dependency is a chart from a repository that a chart in the source depends on and does not
// vendor. Version is the one in Chart.lock.
type Dependency struct{ Name, Version, Repository string }

// FetchedDependency is a dependency and the folder with its unpacked archive.
type FetchedDependency struct {
	Dependency
	Root string
}

// vendorAdvice is the advice for every missing dependency.
const vendorAdvice = "vendor it (helm dependency build) and commit it"

// RequiredDependencies returns the dependencies that WithDependencies must be called with.
func (c *Chart) RequiredDependencies() []Dependency { return c.required }

// WithDependencies returns a copy of the chart with its fetched dependencies, as if they were
// vendored in its folder charts/.
func (c *Chart) WithDependencies(fetched []FetchedDependency) (*Chart, error) {
	out := &Chart{Path: c.Path, loader: c.loader}
	files := slices.Clone(c.files)
	left := c.loader.Limits.Bytes - sizeOf(c.files)
	for _, f := range fetched {
		sub, err := c.loader.openUnpacked(f.Root, path.Join(c.Path, "charts", f.Name+"-"+f.Version), &left)
		if err != nil {
			return nil, err
		}
		if sub.Name() != f.Name || sub.Version() != f.Version {
			return nil, c.errorf("Chart.yaml", "the repository %s returned chart %s %s for %s %s, which the chart "+
				"depends on", f.Repository, sub.Name(), sub.Version(), f.Name, f.Version)
		}
		if files, err = c.addSubchart(files, sub); err != nil {
			return nil, err
		}
	}
	if err := out.load(files); err != nil {
		return nil, err
	}
	return out, out.checkComplete("which was not fetched")
}

// addSubchart adds the files of a chart at the same place as "helm dependency build".
func (c *Chart) addSubchart(files []*archive.BufferedFile, sub *Chart) ([]*archive.BufferedFile, error) {
	folder := path.Join("charts", sub.Name()+"-"+sub.Version())
	for _, f := range files {
		if strings.HasPrefix(f.Name, folder+"/") {
			return nil, c.errorf("", "the folder %s of the chart conflicts with its dependency %s %s; %s", folder,
				sub.Name(), sub.Version(), vendorAdvice)
		}
	}
	for _, f := range sub.files {
		files = append(files,
			&archive.BufferedFile{Name: path.Join(folder, f.Name), ModTime: f.ModTime, Data: f.Data})
	}
	return files, nil
}

// missing returns the names of the dependencies that the chart does not include.
func (c *Chart) missing() []string {
	var have, out []string
	for _, sub := range c.chart.Dependencies() {
		have = append(have, sub.Name())
	}
	for _, dep := range c.chart.Metadata.Dependencies {
		if !slices.Contains(have, dep.Name) && !slices.Contains(out, dep.Name) {
			out = append(out, dep.Name)
		}
	}
	return out
}

// checkComplete returns an error if the chart does not include all of its dependencies.
func (c *Chart) checkComplete(what string) error {
	if missing := c.missing(); len(missing) > 0 {
		return c.errorf("Chart.yaml", "the chart depends on %s, %s", strings.Join(missing, ", "), what)
	}
	return nil
}

// resolveDependencies adds dependencies from elsewhere in the source, and records the dependencies
// to fetch.
func (c *Chart) resolveDependencies(tree *source.Tree, left *int64) error {
	if len(c.missing()) == 0 {
		return nil
	}
	missing, err := NewDependencyFinder(tree, c.loader.Limits).missing(c.Path)
	if err != nil {
		return err
	}
	added := map[string]*Chart{}
	files := slices.Clone(c.files)
	for _, dep := range missing.local {
		if files, err = c.addLocal(tree, dep, files, added, left); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		if err := c.load(files); err != nil {
			return err
		}
	}
	c.required = missing.remote
	for _, name := range c.missing() {
		if !slices.ContainsFunc(c.required, func(d Dependency) bool { return d.Name == name }) {
			return c.errorf("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", name,
				vendorAdvice)
		}
	}
	return nil
}

// addLocal adds a dependency from elsewhere in the source. It adds a folder only once, even if
// several dependencies with different aliases refer to it.
func (c *Chart) addLocal(tree *source.Tree, dep *chart.Dependency, files []*archive.BufferedFile,
	added map[string]*Chart, left *int64) ([]*archive.BufferedFile, error) {
	dir, err := source.Clean(c.Path, strings.TrimPrefix(dep.Repository, localScheme))
	if err != nil {
		return nil, c.errorf("Chart.yaml", "the chart depends on %s with a %s repository: %s; %s", dep.Name,
			localScheme, err, vendorAdvice)
	}
	sub := added[dir]
	if sub == nil {
		if sub, err = c.openLocal(tree, dir, dep.Name, left); err != nil {
			return nil, err
		}
	}
	if sub.Name() != dep.Name || !util.IsCompatibleRange(dep.Version, sub.Version()) {
		return nil, c.errorf("Chart.yaml", "the chart depends on %s %s, but the chart in %s is %s %s", dep.Name,
			dep.Version, dir, sub.Name(), sub.Version())
	}
	if added[dir] != nil {
		return files, nil
	}
	added[dir] = sub
	return c.addSubchart(files, sub)
}

func (c *Chart) openLocal(tree *source.Tree, dir, name string, left *int64) (*Chart, error) {
	if !tree.IsDir(dir) {
		return nil, c.errorf("Chart.yaml",
			"the chart depends on %s, but there is no folder %s in the source; correct its repository, or %s", name,
			dir, vendorAdvice)
	}
	sub := &Chart{Path: dir, loader: c.loader}
	files, err := readFolder(tree, dir, c.loader.Limits, left)
	if err != nil {
		return nil, err
	}
	if err := sub.load(files); err != nil {
		return nil, err
	}
	return sub, sub.checkComplete("which is not in its folder charts/; " + vendorAdvice + ": a chart that is a " +
		localScheme + " dependency must vendor its own dependencies")
}

// MaxDependencies is the maximum number of dependencies of a chart that does not vendor all of
// them, and of dependencies to fetch for the charts of one stack.
const MaxDependencies = 256

// localScheme is the prefix of the repository of a dependency elsewhere in the source.
const localScheme = "file://"

// missingDependencies are the dependencies that a chart in the source does not vendor in charts/.
type missingDependencies struct {
	// remote are charts from repositories, without duplicates.
	remote []Dependency
	// local are charts elsewhere in the source.
	local []*chart.Dependency
}

// resolveMissing determines the sources of the dependencies that are not in have, the names of the
// vendored charts. lock is the name of the chart's lock file.
func resolveMissing(dir string, head *chart.Chart, lock string, have []string) (*missingDependencies, error) {
	out := &missingDependencies{}
	n := len(head.Metadata.Dependencies)
	if head.Lock != nil {
		n = max(n, len(head.Lock.Dependencies))
	}
	if n > MaxDependencies {
		return nil, problem.Errorf(path.Join(dir, "Chart.yaml"), 0,
			"the chart lists %d dependencies, and not all of them are in its folder charts/; at most %d are allowed "+
				"then; %s", n, MaxDependencies, vendorAdvice)
	}
	var errs problem.Errors
	refuse := func(file, format string, args ...any) {
		errs = append(errs, problem.Errorf(path.Join(dir, file), 0, format, args...))
	}
	for _, dep := range head.Metadata.Dependencies {
		switch {
		case slices.Contains(have, dep.Name):
		case dep.Repository == "":
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", dep.Name,
				vendorAdvice)
		case strings.HasPrefix(dep.Repository, "@"), strings.HasPrefix(dep.Repository, "alias:"):
			refuse("Chart.yaml", "the chart depends on %s of the repository %q, an alias that is only in a local "+
				"Helm configuration; set the repository URL, run helm dependency update and commit %s, or %s",
				dep.Name, dep.Repository, lock, vendorAdvice)
		case strings.HasPrefix(dep.Repository, localScheme):
			out.local = append(out.local, dep)
		case head.Lock == nil:
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/, and there is no %s "+
				"with its version; run helm dependency update and commit %s, or %s",
				dep.Name, lock, lock, vendorAdvice)
		default:
			d, why := lockedDependency(dep, head.Lock)
			if why != "" {
				refuse(lock, "the file is out of sync with Chart.yaml: the chart depends on %s, but the file %s; run "+
					"helm dependency update and commit %s, or %s", dep.Name, why, lock, vendorAdvice)
			} else if !slices.Contains(out.remote, d) {
				out.remote = append(out.remote, d)
			}
		}
	}
	return out, errs.Err()
}

// lockedDependency returns a dependency with its version in lock. If lock does not have it, why is
// the reason.
func lockedDependency(dep *chart.Dependency, lock *chart.Lock) (d Dependency, why string) {
	why = "does not list it"
	for _, l := range lock.Dependencies {
		switch {
		case l == nil || l.Name != dep.Name:
		case strings.TrimSuffix(l.Repository, "/") != strings.TrimSuffix(dep.Repository, "/"):
			why = "lists it from another repository"
		case !util.IsCompatibleRange(dep.Version, l.Version):
			why = fmt.Sprintf("lists version %q, which does not match %q", l.Version, dep.Version)
		default:
			return Dependency{Name: dep.Name, Version: l.Version, Repository: dep.Repository}, ""
		}
	}
	return Dependency{}, why
}
