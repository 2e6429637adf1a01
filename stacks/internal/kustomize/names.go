package kustomize

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
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

// Rename changes the names of objects and the references to them, also those between the groups. A
// reference to a name that the group of its object has itself is to that one. Namespaces,
// CustomResourceDefinitions and APIServices keep their names.
func Rename(ctx context.Context, groups []Named) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = problem.Newf("the names cannot be changed: kustomize panicked: %v", v)
		}
	}()
	defer lockKubernetesSchema()()
	var renamed []func()
	for i, group := range groups {
		for rest := group.Objects; len(rest) > 0; {
			if err := ctx.Err(); err != nil {
				return problem.Newf("the render was stopped: %w", err)
			}
			var first []*manifest.Object // the others of the same name are hooks of other events
			first, rest = withoutRepeated(rest, sets.Set[string]{})
			own := sets.Set[string]{}
			for _, o := range group.Objects {
				own.Insert(o.ID())
			}
			build := []Named{{first, group.Prefix, group.Suffix}}
			for j, other := range groups {
				if j != i {
					others, _ := withoutRepeated(other.Objects, own.Clone())
					build = append(build, Named{others, other.Prefix, other.Suffix})
				}
			}
			replace, err := rename(build)
			if err != nil {
				return err
			}
			renamed = append(renamed, replace)
		}
	}
	for _, replace := range renamed {
		replace()
	}
	return nil
}

// withoutRepeated returns the first object of each id that is not taken, and the others of the same
// ids.
func withoutRepeated(objects []*manifest.Object, taken sets.Set[string]) (first, repeated []*manifest.Object) {
	seen := sets.Set[string]{}
	for _, o := range objects {
		switch {
		case seen.Has(o.ID()):
			repeated = append(repeated, o)
		case !taken.Has(o.ID()):
			seen.Insert(o.ID())
			first = append(first, o)
		}
	}
	return first, repeated
}

// rename builds groups of objects, and returns a function that changes the objects of the first
// one.
func rename(groups []Named) (replace func(), err error) {
	files := filesys.MakeFsInMemory()
	var folders []string
	for i, group := range groups {
		if len(group.Objects) == 0 {
			continue
		}
		folder := strconv.Itoa(i)
		var all bytes.Buffer
		for _, o := range group.Objects {
			raw, err := manifest.Canonical(withoutBuildAnnotations(o.Value))
			if err != nil {
				return nil, problem.Newf("%s cannot be encoded as JSON", o)
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
			return nil, err
		}
		folders = append(folders, folder)
	}
	if err := writeKustomization(files, ".", map[string]any{"resources": folders}); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	if err != nil {
		return nil, problem.Newf("the names cannot be changed: %s", oneLine(err))
	}
	return renamer(groups[0].Objects, built)
}

func writeKustomization(files filesys.FileSystem, folder string, kustomization map[string]any) error {
	raw, err := sigsyaml.Marshal(kustomization)
	if err != nil {
		return err
	}
	return files.WriteFile(folder+"/kustomization.yaml", raw)
}

// isBuildAnnotation reports whether an annotation steers kustomize.
func isBuildAnnotation(name string) bool {
	return name == "config.kubernetes.io/local-config" || strings.HasPrefix(name, "internal.config.kubernetes.io/")
}

// withoutBuildAnnotations returns an object without the annotations that steer kustomize.
func withoutBuildAnnotations(value map[string]any) map[string]any {
	metadata, _ := value["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(annotations)), isBuildAnnotation) {
		return value
	}
	value, metadata, annotations = maps.Clone(value), maps.Clone(metadata), maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(name string, _ any) bool { return isBuildAnnotation(name) })
	metadata["annotations"], value["metadata"] = annotations, metadata
	return value
}

// renamer returns a function that sets the values and the names of objects to those of a build,
// which begins with them in the same order.
func renamer(objects []*manifest.Object, built resmap.ResMap) (func(), error) {
	renamed, err := objectsOf("", built)
	if err != nil {
		return nil, err
	}
	if len(renamed) < len(objects) {
		return nil, problem.Newf("the names cannot be changed: %d objects became %d", len(objects), len(renamed))
	}
	return func() {
		for i, o := range objects {
			keepBuildAnnotations(o.Value, renamed[i].Value)
			o.Value = renamed[i].Value
			if o.Name != renamed[i].Name {
				o.FormerName, o.Name = o.Name, renamed[i].Name
			}
		}
	}, nil
}

// keepBuildAnnotations copies the annotations that withoutBuildAnnotations left out.
func keepBuildAnnotations(from, into map[string]any) {
	metadata, _ := from["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for name, value := range annotations {
		if !isBuildAnnotation(name) {
			continue
		}
		metadata, _ := into["metadata"].(map[string]any)
		all, ok := metadata["annotations"].(map[string]any)
		if !ok {
			all = map[string]any{}
			metadata["annotations"] = all
		}
		all[name] = value
	}
}
