// Package kustomization builds kustomizations that are not part of a stack. It reads files from an
// fs.FS, fetches nothing, and executes nothing.
package kustomization

import (
	"context"
	"io/fs"

	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// Build returns the objects of the kustomization in the folder dir of fsys. Numbers are int64 or
// float64. The error names the file that prevents the build: it is a *problem.Error, or
// problem.Errors. Remote bases, charts and plugins are errors.
func Build(ctx context.Context, fsys fs.FS, dir string) (objects []map[string]any, err error) {
	defer func() {
		if v := recover(); v != nil {
			objects, err = nil, problem.Errorf(dir, 0, "the kustomization cannot be built: kustomize panicked: %v", v)
		}
	}()
	tree := source.OpenFS(fsys)
	defer tree.Close()
	return kustomize.BuildValues(ctx, tree, dir)
}
