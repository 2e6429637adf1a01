package helm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/ksctl/gitops/stacks/problem"
)

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
		return nil, problem.Errorf(path.Join(dir, "Chart.yaml"), 0, "the chart lists %d dependencies, and not all of them are in its folder charts/; at most %d are allowed then; %s", n, MaxDependencies, vendorAdvice)
	}
	var errs problem.Errors
	refuse := func(file, format string, args ...any) {
		errs = append(errs, problem.Errorf(path.Join(dir, file), 0, format, args...))
	}
	for _, dep := range head.Metadata.Dependencies {
		switch {
		case slices.Contains(have, dep.Name):
		case dep.Repository == "":
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", dep.Name, vendorAdvice)
		case strings.HasPrefix(dep.Repository, "@"), strings.HasPrefix(dep.Repository, "alias:"):
			refuse("Chart.yaml", "the chart depends on %s of the repository %q, an alias that is only in a local Helm configuration; set the repository URL, run helm dependency update and commit %s, or %s",
				dep.Name, dep.Repository, lock, vendorAdvice)
		case strings.HasPrefix(dep.Repository, localScheme):
			out.local = append(out.local, dep)
		case head.Lock == nil:
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/, and there is no %s with its version; run helm dependency update and commit %s, or %s",
				dep.Name, lock, lock, vendorAdvice)
		default:
			d, why := lockedDependency(dep, head.Lock)
			if why != "" {
				refuse(lock, "the file is out of sync with Chart.yaml: the chart depends on %s, but the file %s; run helm dependency update and commit %s, or %s", dep.Name, why, lock, vendorAdvice)
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
