package helm

import (
	"fmt"
	"maps"
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

// RequiredDependencies returns the dependencies to fetch, whatever the values are.
func (c *Chart) RequiredDependencies() []Dependency { return required(c.missing) }

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
		out.missing = append(out.missing, sub.missingBelow()...)
	}
	if err := out.load(files); err != nil {
		return nil, err
	}
	for _, m := range c.missing {
		if !slices.ContainsFunc(fetched, func(f FetchedDependency) bool { return m.refersTo(f.Dependency) }) {
			out.missing = append(out.missing, m)
		}
	}
	return out, nil
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

// includes returns true if the chart has a subchart of a name.
func (c *Chart) includes(name string) bool {
	return slices.ContainsFunc(c.chart.Dependencies(), func(sub *chart.Chart) bool { return sub.Name() == name })
}

// checkComplete returns an error if the chart does not include a dependency. One that the values
// can disable is recorded as missing instead. what is the end of the message.
func (c *Chart) checkComplete(what string) error {
	var names []string
	for _, dep := range c.chart.Metadata.Dependencies {
		switch {
		case c.includes(dep.Name):
		case isOptional(dep):
			c.missing = append(c.missing, missingDependency{spec: *dep,
				err: c.errorf("Chart.yaml", "the chart depends on %s, %s", dep.Name, what)})
		case !slices.Contains(names, dep.Name):
			names = append(names, dep.Name)
		}
	}
	if len(names) > 0 {
		return c.errorf("Chart.yaml", "the chart depends on %s, %s", strings.Join(names, ", "), what)
	}
	return nil
}

// resolveDependencies adds dependencies from elsewhere in the source, and records the missing
// ones.
func (c *Chart) resolveDependencies(tree *source.Tree, left *int64) error {
	if !slices.ContainsFunc(c.chart.Metadata.Dependencies,
		func(dep *chart.Dependency) bool { return !c.includes(dep.Name) }) {
		return nil
	}
	missing, err := NewDependencyFinder(tree, c.loader.Limits).missing(c.Path)
	if err != nil {
		return err
	}
	added := map[string]*Chart{}
	files := slices.Clone(c.files)
	for _, m := range missing {
		if !m.local {
			c.missing = append(c.missing, m)
			continue
		}
		more, err := c.addLocal(tree, &m.spec, files, added, left)
		switch {
		case err == nil:
			files = more
		case isOptional(&m.spec):
			m.err = err
			c.missing = append(c.missing, m)
		default:
			return err
		}
	}
	if len(added) > 0 {
		if err := c.load(files); err != nil {
			return err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(added)) {
		c.missing = append(c.missing, added[dir].missingBelow()...)
	}
	for _, dep := range c.chart.Metadata.Dependencies {
		known := func(m missingDependency) bool { return m.of.name == "" && m.spec.Name == dep.Name }
		if !c.includes(dep.Name) && !slices.ContainsFunc(c.missing, known) {
			return c.errorf("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", dep.Name,
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

// resolveMissing returns the dependencies that are not in have, the names of the vendored charts.
// lock is the name of the chart's lock file.
func resolveMissing(dir string, head *chart.Chart, lock string, have []string) ([]missingDependency, error) {
	n := len(head.Metadata.Dependencies)
	if head.Lock != nil {
		n = max(n, len(head.Lock.Dependencies))
	}
	if n > MaxDependencies {
		return nil, problem.Errorf(path.Join(dir, "Chart.yaml"), 0,
			"the chart lists %d dependencies, and not all of them are in its folder charts/; at most %d are allowed "+
				"then; %s", n, MaxDependencies, vendorAdvice)
	}
	var out []missingDependency
	var errs problem.Errors
	for _, dep := range head.Metadata.Dependencies {
		if slices.Contains(have, dep.Name) {
			continue
		}
		m := missingDependency{spec: *dep}
		if m.local = strings.HasPrefix(dep.Repository, localScheme); !m.local {
			m.fetch, m.err = resolveRemote(dir, dep, head.Lock, lock)
		}
		if m.err != nil && !isOptional(dep) {
			errs.Add(m.err)
		}
		out = append(out, m)
	}
	if len(errs) > 0 {
		return nil, errs.Err()
	}
	return out, nil
}

// resolveRemote returns what to fetch for a dependency of a chart in a folder.
func resolveRemote(dir string, dep *chart.Dependency, locked *chart.Lock, lock string) (Dependency, error) {
	refuse := func(file, format string, args ...any) (Dependency, error) {
		return Dependency{}, problem.Errorf(path.Join(dir, file), 0, format, args...)
	}
	switch {
	case dep.Repository == "":
		return refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", dep.Name,
			vendorAdvice)
	case strings.HasPrefix(dep.Repository, "@"), strings.HasPrefix(dep.Repository, "alias:"):
		return refuse("Chart.yaml", "the chart depends on %s of the repository %q, an alias that is only in a local "+
			"Helm configuration; set the repository URL, run helm dependency update and commit %s, or %s",
			dep.Name, dep.Repository, lock, vendorAdvice)
	case locked == nil:
		return refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/, and there is no %s "+
			"with its version; run helm dependency update and commit %s, or %s", dep.Name, lock, lock, vendorAdvice)
	}
	d, why := lockedDependency(dep, locked)
	if why != "" {
		return refuse(lock, "the file is out of sync with Chart.yaml: the chart depends on %s, but the file %s; run "+
			"helm dependency update and commit %s, or %s", dep.Name, why, lock, vendorAdvice)
	}
	return d, nil
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
