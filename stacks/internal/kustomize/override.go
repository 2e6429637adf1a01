package kustomize

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"

	// nolint:staticcheck // deprecated in favor of a version that is not released yet
	"sigs.k8s.io/kustomize/api/builtins"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// Override has the changes of an install to rendered objects.
type Override struct {
	Images   []types.Image
	Replicas []types.Replica
	Patches  []Patch
}

// Patch is a patch. Field names it in messages.
type Patch struct {
	Field  string
	Target *types.Selector
	Text   string
}

// Empty returns true if there is nothing to change.
func (o Override) Empty() bool {
	return len(o.Images) == 0 && len(o.Replicas) == 0 && len(o.Patches) == 0
}

// imageFields and replicaKinds are kustomize's defaults.
var (
	imageFields = types.FsSlice{
		{Path: "spec/containers[]/image"}, {Path: "spec/initContainers[]/image"},
		{Path: "spec/volumes[]/image/reference"},
		{Path: "spec/template/spec/containers[]/image"}, {Path: "spec/template/spec/initContainers[]/image"},
		{Path: "spec/template/spec/volumes[]/image/reference"},
	}
	replicaKinds = []string{"Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"}
)

// probeImage is an image name that is set in a trial run, to check whether an images entry matches
// anything.
const probeImage = "override.invalid/probe"

// Apply applies an override to objects of any origin: patches first. An entry that matches no
// object is an error.
func Apply(ctx context.Context, objects []*manifest.Object, o Override) ([]*manifest.Object, error) {
	defer lockKubernetesSchema()()
	factory := resmap.NewFactory(provider.NewDefaultDepProvider().GetResourceFactory())
	m := resmap.New()
	origin := map[*resource.Resource]*manifest.Object{}
	for _, object := range objects {
		res, err := resourceOf(factory, object)
		if err == nil {
			err = m.Append(res)
		}
		if err != nil {
			return nil, &problem.Error{File: object.File, Line: object.Line,
				Message: fmt.Sprintf("%s cannot be changed", object), Err: err}
		}
		origin[res] = object
	}
	a := &applier{m: m, factory: factory}
	for _, patch := range o.Patches {
		if err := ctx.Err(); err != nil {
			return nil, problem.Newf("the render was stopped: %w", err)
		}
		a.applyPatch(patch)
	}
	if len(a.errs) > 0 { // a failed patch may leave half an object
		return nil, a.errs.Err()
	}
	for _, image := range o.Images {
		a.applyImage(image)
	}
	for _, replica := range o.Replicas {
		a.applyReplicas(replica)
	}
	if len(a.errs) > 0 {
		return nil, a.errs.Err()
	}
	m.RemoveBuildAnnotations()
	return collectObjects(m, origin)
}

// resourceOf returns an object for kustomize, which also finds it by its former name.
func resourceOf(factory *resmap.Factory, o *manifest.Object) (*resource.Resource, error) {
	if o.FormerName == "" {
		return factory.RF().FromMap(o.Value)
	}
	value, metadata := maps.Clone(o.Value), map[string]any{}
	if own, ok := o.Value["metadata"].(map[string]any); ok {
		metadata = maps.Clone(own)
	}
	metadata["name"] = o.FormerName
	value["metadata"] = metadata
	res, err := factory.RF().FromMap(value)
	if err != nil {
		return nil, err
	}
	res.StorePreviousId()
	return res, res.SetName(o.Name)
}

// collectObjects converts the resources back to objects. It keeps file, line, hook, NameHash and
// NamespaceDefaulted of the originals.
func collectObjects(m resmap.ResMap, origin map[*resource.Resource]*manifest.Object) ([]*manifest.Object, error) {
	var out []*manifest.Object
	for _, res := range m.Resources() {
		before := origin[res]
		if before == nil {
			before = &manifest.Object{}
		}
		objects, err := manifest.FromNode(document.Kustomize, before.File, res.YNode())
		if err != nil {
			return nil, problem.Errorf(before.File, before.Line, "after the overrides, %s: %s", before,
				problem.Flatten(err)[0].Message)
		}
		for _, o := range objects {
			o.Line, o.Hook, o.Initial, o.CreateOnly = before.Line, before.Hook, before.Initial, before.CreateOnly
			o.NameHash = before.NameHash
			o.NamespaceDefaulted = before.NamespaceDefaulted && o.Namespace == before.Namespace
			out = append(out, o)
		}
	}
	return out, nil
}

type applier struct {
	m       resmap.ResMap
	factory *resmap.Factory
	errs    problem.Errors
}

func (a *applier) fail(field, format string, args ...any) {
	a.errs = append(a.errs, &problem.Error{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (a *applier) applyImage(image types.Image) {
	trial := a.m.DeepCopy()
	marked := &builtins.ImageTagTransformerPlugin{ImageTag: types.Image{Name: image.Name, NewName: probeImage},
		FieldSpecs: imageFields}
	if err := marked.Transform(trial); err != nil {
		a.fail("override.images", "override.images: image %q cannot be matched: %s", image.Name, oneLine(err))
		return
	}
	text, err := trial.AsYaml()
	if err != nil || !strings.Contains(string(text), probeImage) {
		a.fail("override.images", "override.images: image %q matches no rendered object", image.Name)
		return
	}
	plugin := &builtins.ImageTagTransformerPlugin{ImageTag: image, FieldSpecs: imageFields}
	if err := plugin.Transform(a.m); err != nil {
		a.fail("override.images", "override.images: image %q cannot be changed: %s", image.Name, oneLine(err))
	}
}

func (a *applier) applyReplicas(replica types.Replica) {
	plugin := &builtins.ReplicaCountTransformerPlugin{Replica: replica}
	found := false
	for _, kind := range replicaKinds {
		gvk := resid.Gvk{Kind: kind}
		plugin.FieldSpecs = append(plugin.FieldSpecs,
			types.FieldSpec{Path: "spec/replicas", CreateIfNotPresent: true, Gvk: gvk})
		found = found || len(a.m.GetMatchingResourcesByAnyId(func(id resid.ResId) bool {
			return id.Name == replica.Name && id.IsSelected(&gvk)
		})) > 0
	}
	if !found {
		a.fail("override.replicas", "override.replicas: %q matches no rendered object: no %s has that name",
			replica.Name,
			strings.Join(replicaKinds, ", "))
		return
	}
	if err := plugin.Transform(a.m); err != nil {
		a.fail("override.replicas", "override.replicas: %q cannot be changed: %s", replica.Name, oneLine(err))
	}
}

func (a *applier) applyPatch(patch Patch) {
	name := patch.Field
	if patch.Target != nil {
		a.applyToTarget(name, patch.Text, patch.Target)
		return
	}
	docs, err := a.factory.RF().SliceFromBytes([]byte(patch.Text))
	if err != nil || len(docs) == 0 {
		a.fail(name, "%s needs a target, or must be an object with kind and name", name)
		return
	}
	for _, doc := range docs {
		id := doc.OrgId()
		target := &types.Selector{ResId: resid.ResId{
			Gvk: resid.Gvk{Group: regexp.QuoteMeta(id.Group), Version: regexp.QuoteMeta(id.Version),
				Kind: regexp.QuoteMeta(id.Kind)},
			Name: regexp.QuoteMeta(id.Name), Namespace: regexp.QuoteMeta(id.Namespace),
		}}
		text, err := doc.AsYAML()
		if err != nil {
			a.fail(name, "%s cannot be read: %s", name, oneLine(err))
			continue
		}
		a.applyToTarget(name, string(text), target)
	}
}

func (a *applier) applyToTarget(name, text string, target *types.Selector) {
	selected, err := a.m.Select(*target)
	if err != nil {
		a.fail(name, "%s: the target cannot be read: %s", name, oneLine(err))
		return
	}
	if len(selected) == 0 {
		a.fail(name, "%s matches no rendered object: its target is %s", name, DescribeTarget(target))
		return
	}
	config, err := yaml.Marshal(map[string]any{"patch": text, "target": target})
	if err != nil {
		a.fail(name, "%s cannot be read: %s", name, oneLine(err))
		return
	}
	plugin := &builtins.PatchTransformerPlugin{}
	if err = plugin.Config(resmap.NewPluginHelpers(nil, nil, a.factory, types.DisabledPluginConfig()),
		config); err == nil {
		err = plugin.Transform(a.m)
	}
	if err != nil {
		a.fail(name, "%s cannot be applied: %s", name, oneLine(err))
	}
}

// DescribeTarget describes a target for messages.
func DescribeTarget(t *types.Selector) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+strings.ReplaceAll(value, `\`, ""))
		}
	}
	add("group", t.Group)
	add("version", t.Version)
	add("kind", t.Kind)
	add("name", t.Name)
	add("namespace", t.Namespace)
	add("labels", t.LabelSelector)
	add("annotations", t.AnnotationSelector)
	if len(parts) == 0 {
		return "empty"
	}
	return strings.Join(parts, ", ")
}
