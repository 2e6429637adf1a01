package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks"
)

// separateKinds are the kinds that a stack leaves out, because the HelmReleases of a Kustomization
// are converted on their own.
var separateKinds = []reference{{kind: "HelmRelease", name: helmGroup}, {kind: "HelmChart", name: sourceGroup},
	{kind: "HelmRepository", name: sourceGroup}}

func isSeparate(value map[string]any) bool {
	o := Object{Value: value}
	return slices.ContainsFunc(separateKinds, func(r reference) bool { return o.is(r.name, r.kind) })
}

// separateReleases leaves HelmReleases and their repositories out of the stack of a Kustomization.
// The stack has no component if there is nothing else.
func (v *conversion) separateReleases(objects []map[string]any) {
	if !slices.ContainsFunc(objects, func(value map[string]any) bool {
		return (&Object{Value: value}).is(helmGroup, "HelmRelease")
	}) {
		return
	}
	for _, kind := range separateKinds {
		isKind := func(o map[string]any) bool { return (&Object{Value: o}).is(kind.name, kind.kind) }
		if slices.ContainsFunc(objects, isKind) {
			v.components[0].Patches = append(v.components[0].Patches, stacks.Patch{
				Target: &stacks.PatchTarget{Kind: kind.kind}, Patch: map[string]any{"$patch": "delete"}})
		}
	}
	build := v.render
	v.render = func() ([]map[string]any, error) {
		all, err := build()
		return slices.DeleteFunc(all, isSeparate), err
	}
	if !slices.ContainsFunc(objects, func(value map[string]any) bool { return !isSeparate(value) }) {
		v.components = nil
	}
}

// afterParent makes a release wait for what renders it, which may create its namespace.
func (v *conversion) afterParent() {
	switch parent := v.object.parent; {
	case parent == nil || parent.kept:
	case parent.components == nil:
		v.after = append(v.after, parent.after...)
	default:
		v.after = append(v.after, dependency{reference: parent.ref})
	}
}

// setCharts sets the folders of fetched charts. It adds fetched dependencies to a copy of the chart
// in the source, because Helm reads them from there.
func (v *conversion) setCharts(fetched []stacks.FetchedChart, work string) error {
	for _, chart := range fetched {
		entries, err := os.ReadDir(chart.Root)
		if err != nil || len(entries) != 1 {
			return fmt.Errorf("the archive of %s must have exactly one folder", chart)
		}
		folder := filepath.Join(chart.Root, entries[0].Name())
		if chart.DependencyOf == "" {
			v.setChartRoot(chart.Component, folder)
			continue
		}
		root := v.chartRoots[chart.Component]
		if strings.HasPrefix(root, work) {
			if root, err = os.MkdirTemp(filepath.Dir(work), "chart-"); err != nil {
				return err
			}
			root = filepath.Join(root, "chart")
			if err := os.CopyFS(root, os.DirFS(v.chartRoots[chart.Component])); err != nil {
				return err
			}
			v.setChartRoot(chart.Component, root)
		}
		if err := os.CopyFS(filepath.Join(root, "charts", entries[0].Name()), os.DirFS(folder)); err != nil {
			return err
		}
	}
	return nil
}
