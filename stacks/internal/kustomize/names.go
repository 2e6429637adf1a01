package kustomize

import (
	"bytes"
	"context"
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// Named are objects that get a prefix and a suffix.
type Named struct {
	Objects        []*manifest.Object
	Prefix, Suffix string
}

// Rename changes the names of objects and the references to them, also those between the groups.
// Namespaces, CustomResourceDefinitions and APIServices keep their names. The order stays.
func Rename(ctx context.Context, groups []Named) error {
	if err := ctx.Err(); err != nil {
		return problem.Newf("the render was stopped: %w", err)
	}
	files := filesys.MakeFsInMemory()
	var folders []string
	var objects []*manifest.Object
	for i, group := range groups {
		if len(group.Objects) == 0 {
			continue
		}
		folder := fmt.Sprintf("%d", i)
		var all bytes.Buffer
		for _, o := range group.Objects {
			raw, err := manifest.Canonical(o.Value)
			if err != nil {
				return problem.Newf("%s cannot be encoded as JSON", o)
			}
			all.WriteString("---\n")
			all.Write(append(raw, '\n'))
		}
		err := writeKustomization(files, folder, map[string]any{"resources": []string{"all.yaml"},
			"namePrefix": group.Prefix, "nameSuffix": group.Suffix})
		if err == nil {
			err = files.WriteFile(folder+"/all.yaml", all.Bytes())
		}
		if err != nil {
			return err
		}
		folders, objects = append(folders, folder), append(objects, group.Objects...)
	}
	if err := writeKustomization(files, ".", map[string]any{"resources": folders}); err != nil {
		return err
	}
	unlock := lockKubernetesSchema()
	defer unlock()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	if err != nil {
		return problem.Newf("the names cannot be changed: %s", oneLine(err))
	}
	return replaceRenamed(objects, built)
}

func writeKustomization(files filesys.FileSystem, folder string, kustomization map[string]any) error {
	raw, err := sigsyaml.Marshal(kustomization)
	if err != nil {
		return err
	}
	return files.WriteFile(folder+"/kustomization.yaml", raw)
}

// replaceRenamed sets the values and the names of objects to those of a build in the same order.
func replaceRenamed(objects []*manifest.Object, built resmap.ResMap) error {
	renamed, err := objectsOf("", built)
	if err != nil {
		return err
	}
	if len(renamed) != len(objects) {
		return problem.Newf("the names cannot be changed: %d objects became %d", len(objects), len(renamed))
	}
	for i, o := range objects {
		o.Value = renamed[i].Value
		if o.Name != renamed[i].Name {
			o.FormerName, o.Name = o.Name, renamed[i].Name
		}
	}
	return nil
}
