package kustomize

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

// parseOpenAPISchema parses the global OpenAPI schema of kustomize. Builds read it without a lock,
// so nothing may change it after the first build.
var parseOpenAPISchema = sync.OnceFunc(func() { openapi.Schema() })

// Build builds the kustomization in a folder.
func Build(ctx context.Context, tree *source.Tree, dir string) ([]*manifest.Object, error) {
	if err := Scan(tree, dir); err != nil {
		return nil, err
	}
	file, err := FindFile(tree, dir)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, problem.Newf("the render was stopped: %w", err)
	}
	parseOpenAPISchema()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fileSystem{tree}, "/"+dir)
	if err != nil {
		return nil, &problem.Error{File: file, Message: "the kustomization cannot be built: " + oneLine(err), Err: err}
	}
	return objectsOf(file, built)
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
