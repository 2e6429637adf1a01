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

// MaxDependencies bounds what one chart lists when it does not bring it all, and what
// is fetched for the charts of one stack.
const MaxDependencies = 256

// localScheme begins the address of a chart that is elsewhere in the source.
const localScheme = "file://"

// lacks is what a chart in the source depends on and does not bring in charts/.
type lacks struct {
	// remote are charts of repositories, each once.
	remote []Dependency
	// local are charts elsewhere in the source.
	local []*chart.Dependency
}

// decide says where the dependencies come from that a chart does not have. lock is
// what its lock file is called.
func decide(dir string, head *chart.Chart, lock string, have []string) (*lacks, error) {
	out := &lacks{}
	if n := max(len(head.Metadata.Dependencies), locks(head)); n > MaxDependencies {
		return nil, &problem.Error{File: path.Join(dir, "Chart.yaml"), Message: fmt.Sprintf("the chart lists %d dependencies, and not all of them are in its folder charts/; that is for at most %d; %s", n, MaxDependencies, vendorIt)}
	}
	var errs problem.Errors
	refuse := func(file, format string, args ...any) {
		errs = append(errs, &problem.Error{File: path.Join(dir, file), Message: fmt.Sprintf(format, args...)})
	}
	for _, dep := range head.Metadata.Dependencies {
		switch {
		case slices.Contains(have, dep.Name):
		case dep.Repository == "":
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/; %s", dep.Name, vendorIt)
		case strings.HasPrefix(dep.Repository, "@"), strings.HasPrefix(dep.Repository, "alias:"):
			refuse("Chart.yaml", "the chart depends on %s of the repository %q, a name that only the helm of one machine knows; write the repository's address, run helm dependency update and commit %s, or %s",
				dep.Name, dep.Repository, lock, vendorIt)
		case strings.HasPrefix(dep.Repository, localScheme):
			out.local = append(out.local, dep)
		case head.Lock == nil:
			refuse("Chart.yaml", "the chart depends on %s, which is not in its folder charts/, and there is no %s that says in which version; run helm dependency update and commit %s, or %s",
				dep.Name, lock, lock, vendorIt)
		default:
			d, why := locked(dep, head.Lock)
			if why != "" {
				refuse(lock, "this is out of step with Chart.yaml: the chart depends on %s, and this file %s; run helm dependency update and commit %s, or %s", dep.Name, why, lock, vendorIt)
			} else if !slices.Contains(out.remote, d) {
				out.remote = append(out.remote, d)
			}
		}
	}
	return out, errs.Err()
}

func locks(head *chart.Chart) int {
	if head.Lock == nil {
		return 0
	}
	return len(head.Lock.Dependencies)
}

// locked is a dependency in the version that lock has, or why it is not there.
func locked(dep *chart.Dependency, lock *chart.Lock) (d Dependency, why string) {
	why = "does not have it"
	for _, l := range lock.Dependencies {
		switch {
		case l == nil || l.Name != dep.Name:
		case strings.TrimSuffix(l.Repository, "/") != strings.TrimSuffix(dep.Repository, "/"):
			why = "has it of another repository"
		case !util.IsCompatibleRange(dep.Version, l.Version):
			why = fmt.Sprintf("has version %q of it where %q is wanted", l.Version, dep.Version)
		default:
			return Dependency{Name: dep.Name, Version: l.Version, Repository: dep.Repository}, ""
		}
	}
	return Dependency{}, why
}
