package convert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/fluxcd/pkg/envsubst"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

// buildKustomization builds a folder as kustomize-controller does, before it substitutes variables.
func buildKustomization(root, dir string, spec *kustomizationSpec,
	read func(string)) ([]map[string]any, error) {
	dir = filepath.Join(root, dir)
	objects, err := buildFolder(dir, func() (*types.Kustomization, error) {
		files, folders, err := folderEntries(dir)
		return &types.Kustomization{Resources: append(files, folders...)}, err
	}, func(k *types.Kustomization) {
		if spec.TargetNamespace != "" {
			k.Namespace = spec.TargetNamespace
		}
		if spec.NamePrefix != "" {
			k.NamePrefix = spec.NamePrefix
		}
		if spec.NameSuffix != "" {
			k.NameSuffix = spec.NameSuffix
		}
		for _, p := range spec.Patches {
			k.Patches = append(k.Patches, types.Patch{Patch: p.Patch, Target: selector(p.Target)})
		}
		for _, component := range spec.Components {
			if _, err := os.Stat(filepath.Join(dir, component)); err == nil || !spec.IgnoreMissingComponents {
				k.Components = append(k.Components, component)
			}
		}
		for _, image := range spec.Images {
			k.Images = mergeImage(k.Images, kustomizeImage(image))
		}
	}, read)
	return objects, err
}

// applyKustomization builds a folder, and changes the objects as kustomize-controller does.
func applyKustomization(root, dir string, spec *kustomizationSpec, variables map[string]string) ([]map[string]any,
	error) {
	objects, err := buildKustomization(root, dir, spec, nil)
	if err != nil {
		return nil, err
	}
	if objects, err = substitute(objects, variables); err != nil {
		return nil, err
	}
	if spec.CommonMetadata != nil {
		for _, o := range objects {
			setCommonMetadata(o, spec.CommonMetadata)
		}
	}
	return objects, nil
}

// substitute substitutes variables as kustomize-controller does: in the text of each object.
func substitute(objects []map[string]any, variables map[string]string) ([]map[string]any, error) {
	const field, disabled = "kustomize.toolkit.fluxcd.io/substitute", "disabled"
	for i, o := range objects {
		if len(variables) == 0 || nested(o, "metadata", "labels", field) == disabled ||
			nested(o, "metadata", "annotations", field) == disabled {
			continue
		}
		data, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		text, err := envsubst.Eval(string(data), func(name string) (string, bool) { return variables[name], true })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", (&Object{Value: o}).ref(), err)
		}
		objects[i] = nil
		if err := yaml.Unmarshal([]byte(text), &objects[i]); err != nil {
			return nil, fmt.Errorf("%s after the substitution: %w", (&Object{Value: o}).ref(), err)
		}
	}
	return objects, nil
}

func kustomizeImage(i stacks.Image) types.Image {
	return types.Image{Name: i.Name, NewName: i.NewName, NewTag: i.NewTag, Digest: i.Digest}
}

// mergeImage adds an image as kustomize-controller does: it changes that of the same name.
func mergeImage(images []types.Image, image types.Image) []types.Image {
	for i := range images {
		have := &images[i]
		if have.Name != image.Name {
			continue
		}
		if image.NewName != "" {
			have.NewName = image.NewName
		}
		if image.NewTag != "" || image.Digest != "" {
			have.NewTag, have.Digest = image.NewTag, image.Digest
		}
		return images
	}
	return append(images, image)
}

func setCommonMetadata(object map[string]any, common *commonMetadata) {
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	for field, values := range map[string]map[string]string{"labels": common.Labels,
		"annotations": common.Annotations} {
		have, _ := meta[field].(map[string]any)
		have = maps.Clone(have)
		if have == nil {
			have = map[string]any{}
		}
		for key, value := range values {
			have[key] = value
		}
		meta[field] = have
	}
}

func selector(t *stacks.PatchTarget) *types.Selector {
	if t == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{Gvk: resid.Gvk{Group: t.Group, Version: t.Version, Kind: t.Kind}, Name: t.Name,
			Namespace: t.Namespace},
		LabelSelector: t.LabelSelector, AnnotationSelector: t.AnnotationSelector,
	}
}
