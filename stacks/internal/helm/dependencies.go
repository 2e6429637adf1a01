package helm

import (
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/ksctl/gitops/stacks/internal/source"
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
	out := &Chart{Path: c.Path, limits: c.limits, files: slices.Clone(c.files)}
	left := c.limits.Bytes - sizeOf(c.files)
	for _, f := range fetched {
		sub, err := openUnpacked(f.Root, path.Join(c.Path, "charts", f.Name+"-"+f.Version), c.limits, &left)
		if err != nil {
			return nil, err
		}
		if sub.Name() != f.Name || sub.Version() != f.Version {
			return nil, c.errorf("Chart.yaml", "the repository %s returned chart %s %s for %s %s, which the chart depends on", f.Repository, sub.Name(), sub.Version(), f.Name, f.Version)
		}
		if err := out.addSubchart(sub); err != nil {
			return nil, err
		}
	}
	if err := out.parse(); err != nil {
		return nil, err
	}
	return out, out.checkComplete("which was not fetched")
}

// addSubchart adds a chart at the same place as "helm dependency build".
func (c *Chart) addSubchart(sub *Chart) error {
	folder := path.Join("charts", sub.Name()+"-"+sub.Version())
	for _, f := range c.files {
		if strings.HasPrefix(f.Name, folder+"/") {
			return c.errorf("", "the folder %s of the chart conflicts with its dependency %s %s; %s", folder, sub.Name(), sub.Version(), vendorAdvice)
		}
	}
	for _, f := range sub.files {
		c.files = append(c.files, &archive.BufferedFile{Name: path.Join(folder, f.Name), ModTime: f.ModTime, Data: f.Data})
	}
	return nil
}

// missing returns the names of the dependencies that the chart does not include.
func (c *Chart) missing() []string {
	var have, out []string
	for _, sub := range c.pristine.Dependencies() {
		have = append(have, sub.Name())
	}
	for _, dep := range c.pristine.Metadata.Dependencies {
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
	missing, err := NewDependencyFinder(tree, c.limits).missing(c.Path)
	if err != nil {
		return err
	}
	added := map[string]*Chart{}
	for _, dep := range missing.local {
		if err := c.addLocal(tree, dep, added, left); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		if err := c.parse(); err != nil {
			return err
		}
	}
	c.required = missing.remote
	for _, name := range c.missing() {
		if !slices.ContainsFunc(c.required, func(d Dependency) bool { return d.Name == name }) {
			return c.errorf("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", name, vendorAdvice)
		}
	}
	return nil
}

// addLocal adds a dependency from elsewhere in the source. It adds a folder only once, even if
// several dependencies with different aliases refer to it.
func (c *Chart) addLocal(tree *source.Tree, dep *chart.Dependency, added map[string]*Chart, left *int64) error {
	dir, err := source.Clean(c.Path, strings.TrimPrefix(dep.Repository, localScheme))
	if err != nil {
		return c.errorf("Chart.yaml", "the chart depends on %s with a %s repository: %s; %s", dep.Name, localScheme, err, vendorAdvice)
	}
	sub := added[dir]
	if sub == nil {
		if sub, err = c.openLocal(tree, dir, dep.Name, left); err != nil {
			return err
		}
	}
	if sub.Name() != dep.Name || !util.IsCompatibleRange(dep.Version, sub.Version()) {
		return c.errorf("Chart.yaml", "the chart depends on %s %s, but the chart in %s is %s %s", dep.Name, dep.Version, dir, sub.Name(), sub.Version())
	}
	if added[dir] != nil {
		return nil
	}
	added[dir] = sub
	return c.addSubchart(sub)
}

func (c *Chart) openLocal(tree *source.Tree, dir, name string, left *int64) (*Chart, error) {
	if !tree.IsDir(dir) {
		return nil, c.errorf("Chart.yaml", "the chart depends on %s, but there is no folder %s in the source; correct its repository, or %s", name, dir, vendorAdvice)
	}
	sub := &Chart{Path: dir, limits: c.limits}
	var err error
	if sub.files, err = readFolder(tree, dir, c.limits, left); err != nil {
		return nil, err
	}
	if err := sub.parse(); err != nil {
		return nil, err
	}
	return sub, sub.checkComplete("which is not in its folder charts/; " + vendorAdvice + ": a chart that is a " + localScheme + " dependency must vendor its own dependencies")
}
