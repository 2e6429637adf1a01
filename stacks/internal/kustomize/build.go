package kustomize

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Build builds the kustomization in a folder, with further Components. Their paths are relative to
// the folder. render renders its charts.
func Build(ctx context.Context, tree *source.Tree, dir string, components []string,
	render RenderChart) ([]*manifest.Object, error) {
	file, built, err := build(ctx, tree, dir, components, render)
	if err != nil {
		return nil, err
	}
	return objectsOf(file, built)
}

// BuildValues builds the kustomization in a folder, and returns its objects as kustomize builds
// them. It renders no charts.
func BuildValues(ctx context.Context, tree *source.Tree, dir string) ([]map[string]any, error) {
	file, built, err := build(ctx, tree, dir, nil, func(r Release) ([]*manifest.Object, error) {
		return nil, problem.Newf("the chart of the release %q is not rendered here", r.Name)
	})
	if err != nil {
		return nil, err
	}
	out := make([]map[string]any, 0, built.Size())
	for _, res := range built.Resources() {
		value, err := document.Kustomize.Map(file, res.YNode())
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	return out, nil
}

// build builds the kustomization in a folder, and returns the path of its file.
func build(ctx context.Context, tree *source.Tree, dir string, components []string,
	render RenderChart) (string, resmap.ResMap, error) {
	s, err := scan(tree, dir, components)
	if err != nil {
		return "", nil, err
	}
	file, err := FindFile(tree, dir)
	if err != nil {
		return "", nil, err
	}
	generated, err := renderCharts(tree, s.charts, render)
	if err == nil && len(components) > 0 {
		err = generated.addComponents(tree, file, components)
	}
	if err != nil {
		return "", nil, err
	}
	if err := ctx.Err(); err != nil {
		return "", nil, problem.Newf("the render was stopped: %w", err)
	}
	built, err := runLocked(s, func() (resmap.ResMap, error) {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fileSystem{tree, generated}, "/"+dir)
		if err != nil {
			return nil, &problem.Error{File: file, Message: "the kustomization cannot be built: " + oneLine(err),
				Err: err}
		}
		return built, nil
	})
	return file, built, err
}

func objectsOf(file string, built resmap.ResMap) ([]*manifest.Object, error) {
	var out []*manifest.Object
	var errs problem.Errors
	for _, res := range built.Resources() {
		objects, err := manifest.FromNode(document.Kustomize, file, res.YNode())
		for _, e := range problem.Flatten(err) {
			// The line is in the output of a transformer, which the user cannot see.
			e.Line = 0
			e.Message = fmt.Sprintf("%s %q: %s", res.GetKind(), res.GetName(), e.Message)
			errs = append(errs, e)
		}
		for _, o := range objects {
			o.Line = 0
		}
		out = append(out, objects...)
	}
	return out, errs.Err()
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
