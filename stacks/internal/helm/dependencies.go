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

// Dependency is a chart of a repository that a chart in the source needs and does
// not bring, in the version that its Chart.lock has.
type Dependency struct{ Name, Version, Repository string }

// Fetched is a dependency, and the folder that its archive was unpacked in.
type Fetched struct {
	Dependency
	Root string
}

// vendorIt is what can be done about every dependency that is not there.
const vendorIt = "vendor it (helm dependency build) and commit it"

// Needs are what With has to be given.
func (c *Chart) Needs() []Dependency { return c.needs }

// With is the chart with its Needs, as if they were packed in its folder charts/.
func (c *Chart) With(fetched []Fetched) (*Chart, error) {
	out := &Chart{Path: c.Path, limits: c.limits, files: slices.Clone(c.files)}
	left := c.limits.Bytes - sizeOf(c.files)
	for _, f := range fetched {
		sub, err := openUnpacked(f.Root, path.Join(c.Path, "charts", f.Name+"-"+f.Version), c.limits, &left)
		if err != nil {
			return nil, err
		}
		if sub.Name() != f.Name || sub.Version() != f.Version {
			return nil, c.fail("Chart.yaml", "the repository %s gives the chart %s %s for %s %s, which the chart depends on", f.Repository, sub.Name(), sub.Version(), f.Name, f.Version)
		}
		if err := out.take(sub); err != nil {
			return nil, err
		}
	}
	if err := out.open(); err != nil {
		return nil, err
	}
	return out, out.lacksNothing("which was not fetched")
}

// take puts a chart where "helm dependency build" would.
func (c *Chart) take(sub *Chart) error {
	folder := path.Join("charts", sub.Name()+"-"+sub.Version())
	for _, f := range c.files {
		if strings.HasPrefix(f.Name, folder+"/") {
			return c.fail("", "the folder %s of the chart is in the way of its dependency %s %s; %s", folder, sub.Name(), sub.Version(), vendorIt)
		}
	}
	for _, f := range sub.files {
		c.files = append(c.files, &archive.BufferedFile{Name: path.Join(folder, f.Name), ModTime: f.ModTime, Data: f.Data})
	}
	return nil
}

// missing are the dependencies that the chart does not bring, by name.
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

// lacksNothing refuses a chart that does not bring what it depends on.
func (c *Chart) lacksNothing(what string) error {
	if missing := c.missing(); len(missing) > 0 {
		return c.fail("Chart.yaml", "the chart depends on %s, %s", strings.Join(missing, ", "), what)
	}
	return nil
}

// complete takes what lies elsewhere in the source, and notes what has to be fetched.
func (c *Chart) complete(tree *source.Tree, left *int64) error {
	if len(c.missing()) == 0 {
		return nil
	}
	lacks, err := NewLook(tree, c.limits).lacking(c.Path)
	if err != nil {
		return err
	}
	taken := map[string]*Chart{}
	for _, dep := range lacks.local {
		if err := c.takeLocal(tree, dep, taken, left); err != nil {
			return err
		}
	}
	if len(taken) > 0 {
		if err := c.open(); err != nil {
			return err
		}
	}
	c.needs = lacks.remote
	for _, name := range c.missing() {
		if !slices.ContainsFunc(c.needs, func(d Dependency) bool { return d.Name == name }) {
			return c.fail("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", name, vendorIt)
		}
	}
	return nil
}

// takeLocal takes a chart that is elsewhere in the source, once, whatever it is called.
func (c *Chart) takeLocal(tree *source.Tree, dep *chart.Dependency, taken map[string]*Chart, left *int64) error {
	dir, err := source.Clean(c.Path, strings.TrimPrefix(dep.Repository, localScheme))
	if err != nil {
		return c.fail("Chart.yaml", "the chart depends on %s by %s: %s; %s", dep.Name, localScheme, err, vendorIt)
	}
	sub := taken[dir]
	if sub == nil {
		if sub, err = c.openLocal(tree, dir, dep.Name, left); err != nil {
			return err
		}
	}
	if sub.Name() != dep.Name || !util.IsCompatibleRange(dep.Version, sub.Version()) {
		return c.fail("Chart.yaml", "the chart depends on %s %s, and the chart in %s is %s %s", dep.Name, dep.Version, dir, sub.Name(), sub.Version())
	}
	if taken[dir] != nil {
		return nil
	}
	taken[dir] = sub
	return c.take(sub)
}

func (c *Chart) openLocal(tree *source.Tree, dir, name string, left *int64) (*Chart, error) {
	if !tree.IsDir(dir) {
		return nil, c.fail("Chart.yaml", "the chart depends on %s, and there is no folder %s in the source; correct its address, or %s", name, dir, vendorIt)
	}
	sub := &Chart{Path: dir, limits: c.limits}
	var err error
	if sub.files, err = readFolder(tree, dir, c.limits, left); err != nil {
		return nil, err
	}
	if err := sub.open(); err != nil {
		return nil, err
	}
	return sub, sub.lacksNothing("which is not in its folder charts/; " + vendorIt + ": what another chart takes by " + localScheme + " has to bring what it depends on")
}
