package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Step is one commit of a move, and what to run after it.
type Step struct {
	Title string
	// Lines are what to change and to run.
	Lines []string
}

// fieldManagers are those of the former tools, with which kubectl diff shows what they applied.
var fieldManagers = map[string]string{"Kustomization": "kustomize-controller", "HelmRelease": "helm-controller",
	"Application": "ksctl-gitops"}

// resources are the full names of the former kinds, for kubectl.
var resources = map[string]string{"Kustomization": "kustomizations." + kustomizeGroup,
	"HelmRelease": "helmreleases." + helmGroup, "Application": "applications." + argoGroup}

func waitSuspended(c *Converted) string {
	return fmt.Sprintf("kubectl -n %s wait %s/%s --for=jsonpath='{.spec.suspend}'=true --timeout=5m", c.namespace,
		resources[c.Former], c.name)
}

// Steps returns the commits of docs/moving.md for what was converted: stop the former tool, add the
// stacks and installs, wait, and remove the former objects.
func (r *Result) Steps() (out []Step) {
	add := func(title string, lines []string) {
		if len(lines) > 0 {
			out = append(out, Step{title, unique(lines)})
		}
	}
	add("Commit: suspend the HelmReleases, while they are still "+
		"synced", r.forEach("HelmRelease", func(c *Converted) string {
		return fmt.Sprintf("%s: set spec.suspend: true", c.where())
	}))
	add("Wait until they are suspended", r.forEach("HelmRelease", waitSuspended))
	add("Commit: stop the former tool", append(r.forEach("Kustomization", func(c *Converted) string {
		return fmt.Sprintf("%s: set spec.suspend: true and spec.prune: false", c.where())
	}), r.forEach("Application", func(c *Converted) string {
		return fmt.Sprintf("%s: remove spec.syncPolicy.automated and metadata.finalizers", c.where())
	})...))
	add("Wait until it is stopped", append(r.forEach("Kustomization", waitSuspended),
		r.forEach("Application", func(c *Converted) string {
			return fmt.Sprintf("kubectl -n %s get application %s -o jsonpath='{.spec.syncPolicy.automated}"+
				"{.metadata.finalizers}' must print nothing", c.namespace, c.name)
		})...))
	add("Commit: add the files that this command wrote, after a review", r.reviewLines())
	add("Wait until the installs are ready", r.installLines(func(c *Converted) string {
		namespace, name, _ := strings.Cut(c.Install, "/")
		return fmt.Sprintf("kubectl -n %s wait ksctlinstall/%s --for=condition=Ready --timeout=5m", namespace, name)
	}))
	removal := []string{"remove spec.adopt from the installs"}
	for i := range r.Converted {
		removal = append(removal, "remove "+r.Converted[i].where())
	}
	// A stopped Kustomization does not delete what it rendered.
	for i := range r.Converted {
		c := &r.Converted[i]
		removal = append(removal, fmt.Sprintf("kubectl -n %s delete %s %s --ignore-not-found",
			c.namespace, resources[c.Former], c.name))
	}
	removal = append(removal, r.forEach("HelmRelease", func(c *Converted) string {
		return fmt.Sprintf("kubectl -n %s delete secrets -l owner=helm,name=%s", c.ReleaseNamespace, c.Release)
	})...)
	if len(r.Converted) > 0 {
		add("Commit: remove the former objects; the files that the stacks use stay", removal)
	}
	return out
}

// reviewLines are what to set and to compare before the installs are committed.
func (r *Result) reviewLines() (lines []string) {
	lines = r.installLines(func(c *Converted) string {
		if c.Account {
			return ""
		}
		return fmt.Sprintf("%s: set spec.serviceAccountName; the default account of the namespace has no permissions",
			c.InstallFile)
	})
	for _, name := range r.listed {
		lines = append(lines, fmt.Sprintf("%s: add the new files of its folder to resources", name))
	}
	return append(lines, r.installLines(func(c *Converted) string {
		return fmt.Sprintf("kubectl ksctl render -f %s | kubectl diff --server-side --force-conflicts "+
			"--field-manager %s -f -",
			c.InstallFile, fieldManagers[c.Former])
	})...)
}

func (r *Result) forEach(former string, line func(*Converted) string) (out []string) {
	for i := range r.Converted {
		if c := &r.Converted[i]; c.Former == former {
			out = append(out, line(c))
		}
	}
	return out
}

// installLines calls line for each install.
func (r *Result) installLines(line func(*Converted) string) (out []string) {
	for i := range r.Converted {
		if c := &r.Converted[i]; c.InstallFile != "" {
			out = append(out, line(c))
		}
	}
	return out
}

// where names the object, with its file.
func (c *Converted) where() string {
	if c.File == "" || c.Rendered {
		return c.Object
	}
	return c.Object + " in " + c.File
}

func unique(lines []string) (out []string) {
	for _, line := range lines {
		if line != "" && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// listedFolders returns the kustomizations that list the files of the folders of installs.
func (c *converter) listedFolders() (out []string) {
	for _, v := range c.all {
		file, err := kustomizationFile(path.Join(c.work, path.Dir(v.file)))
		if err == nil && file != "" {
			out = append(out, strings.TrimPrefix(file, c.work+"/"))
		}
	}
	return unique(out)
}
