package convert

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// metadata is what is read of the metadata of an object.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type nameRef struct {
	Name string `json:"name"`
}

type sourceRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
}

// within returns the reference, for an object of a namespace.
func (s *sourceRef) within(namespace string) reference {
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	return reference{s.Kind, namespace, s.Name}
}

type fluxDependency struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	ReadyExpr string `json:"readyExpr"`
}

type fluxKubeConfig struct {
	SecretRef *struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"secretRef"`
	ConfigMapRef *nameRef `json:"configMapRef"`
}

type fluxPatch struct {
	Patch  string              `json:"patch"`
	Target *stacks.PatchTarget `json:"target"`
}

type commonMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type fluxIgnoreRule struct {
	Paths  []string            `json:"paths"`
	Target *stacks.PatchTarget `json:"target"`
}

// kustomizationSpec has the fields of a Kustomization of Flux.
type kustomizationSpec struct {
	CommonMetadata *commonMetadata  `json:"commonMetadata"`
	DependsOn      []fluxDependency `json:"dependsOn"`
	Decryption     *struct {
		Provider           string   `json:"provider"`
		ServiceAccountName string   `json:"serviceAccountName"`
		SecretRef          *nameRef `json:"secretRef"`
	} `json:"decryption"`
	Interval      *metav1.Duration `json:"interval"`
	RetryInterval *metav1.Duration `json:"retryInterval"`
	KubeConfig    *fluxKubeConfig  `json:"kubeConfig"`
	Path          string           `json:"path"`
	PostBuild     *struct {
		SubstituteStrategy string            `json:"substituteStrategy"`
		Substitute         map[string]string `json:"substitute"`
		SubstituteFrom     []struct {
			Kind     string `json:"kind"`
			Name     string `json:"name"`
			Optional bool   `json:"optional"`
		} `json:"substituteFrom"`
	} `json:"postBuild"`
	Prune                   bool             `json:"prune"`
	DeletionPolicy          string           `json:"deletionPolicy"`
	HealthChecks            []any            `json:"healthChecks"`
	NamePrefix              string           `json:"namePrefix"`
	NameSuffix              string           `json:"nameSuffix"`
	Patches                 []fluxPatch      `json:"patches"`
	Images                  []stacks.Image   `json:"images"`
	ServiceAccountName      string           `json:"serviceAccountName"`
	SourceRef               sourceRef        `json:"sourceRef"`
	Suspend                 bool             `json:"suspend"`
	TargetNamespace         string           `json:"targetNamespace"`
	Timeout                 *metav1.Duration `json:"timeout"`
	Force                   bool             `json:"force"`
	Wait                    bool             `json:"wait"`
	BuildMetadata           []string         `json:"buildMetadata"`
	Components              []string         `json:"components"`
	IgnoreMissingComponents bool             `json:"ignoreMissingComponents"`
	HealthCheckExprs        []any            `json:"healthCheckExprs"`
	Ignore                  []fluxIgnoreRule `json:"ignore"`
}

type kustomization struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Spec       kustomizationSpec `json:"spec"`
	Status     any               `json:"status"`
}

// convertKustomization adds the conversion of a Kustomization of Flux.
func (c *converter) convertKustomization(o *Object) {
	var k kustomization
	v := c.begin(o, &k)
	spec := &k.Spec
	if v == nil {
		return
	}
	if source := spec.SourceRef.within(v.ref.namespace).String(); !c.sources[source] {
		v.refuse("spec.sourceRef", source+notThisRepository)
		c.refused(v)
		return
	}
	dir, err := pathInRepository(spec.Path)
	if err == nil {
		_, err = os.Stat(filepath.Join(c.work, dir))
	}
	if err != nil {
		v.refuse("spec.path", fmt.Sprintf("%q can't be used: %s", spec.Path, pathReason(err)))
		c.refused(v)
		return
	}
	v.render = func() ([]map[string]any, error) { return buildKustomization(c.work, dir, spec) }
	objects, err := v.render()
	if err != nil {
		v.refuse("spec.path", "kustomize can't build it: "+oneLine(err.Error(), c.work))
		c.refused(v)
		return
	}
	if c.isParent(v, objects) {
		return
	}
	v.sourceRef(spec.SourceRef)
	v.schedule(spec.Interval, spec.RetryInterval, spec.Timeout, spec.Suspend)
	v.spec.ServiceAccountName = spec.ServiceAccountName
	v.spec.Force = spec.Force
	v.spec.TargetNamespace = spec.TargetNamespace
	v.kubeConfig(spec.KubeConfig)
	v.pruning(spec.Prune, spec.DeletionPolicy)
	v.ignored(spec.Ignore)
	v.decryption(spec)
	v.dependsOn(kustomizeGroup+"/v1", "Kustomization", spec.DependsOn)
	v.health(spec)
	if err := v.folder(c.work, dir); err != nil {
		v.refuse("spec.path", err.Error())
		c.refused(v)
		return
	}
	v.patches(spec.Patches)
	v.images(spec.Images)
	v.notConvertedYet(spec)
	v.separateReleases(objects)
	c.add(v)
}

// notConvertedYet lists the fields for which stacks have no field yet.
func (v *conversion) notConvertedYet(spec *kustomizationSpec) {
	if spec.PostBuild != nil {
		v.refuse("spec.postBuild", "variables are not substituted; set the fields with fields of the component, "+
			"from parameters of the stack")
	}
	if spec.CommonMetadata != nil {
		v.refuse("spec.commonMetadata", "it is not part of a stack; set labels and commonAnnotations in the "+
			"kustomization.yaml")
	}
	const namesOfKustomization = "it is not part of a stack; set it in the kustomization.yaml"
	if spec.NamePrefix != "" {
		v.refuse("spec.namePrefix", namesOfKustomization)
	}
	if spec.NameSuffix != "" {
		v.refuse("spec.nameSuffix", namesOfKustomization)
	}
	if len(spec.Components) > 0 {
		v.refuse("spec.components", "they are not part of a stack; list them in the kustomization.yaml")
	}
}

// folder sets the components for a folder: one for its kustomization; without one, one for the
// manifests and one for each folder with a kustomization of its own.
func (v *conversion) folder(work, dir string) error {
	rel := func(name string) string { return path.Join("../..", dir, name) }
	if file, err := kustomizationFile(filepath.Join(work, dir)); err != nil || file != "" {
		v.components = []stacks.Component{{Name: v.base(), Kustomize: &stacks.Kustomize{Path: rel("")}}}
		return err
	}
	files, folders, err := folderEntries(filepath.Join(work, dir))
	if err != nil {
		return err
	}
	if len(files) > 0 {
		manifests := []string{rel("") + "/"}
		if len(folders) > 0 || hasOtherManifests(filepath.Join(work, dir), files) {
			manifests = nil
			for _, file := range files {
				manifests = append(manifests, rel(file))
			}
		}
		v.components = append(v.components, stacks.Component{Name: v.base(), Manifests: manifests})
	}
	for _, folder := range folders {
		v.components = append(v.components, stacks.Component{Name: label(v.base() + "-" + folder),
			Kustomize: &stacks.Kustomize{Path: rel(folder)}})
	}
	if len(v.components) == 0 {
		return fmt.Errorf("there are no manifests in %s", dir)
	}
	return nil
}

// patches adds patches to the component; with several components, each gets those without a match
// refused, so that only one component may have patches.
func (v *conversion) patches(patches []fluxPatch) {
	for _, p := range patches {
		v.components[0].Patches = append(v.components[0].Patches,
			stacks.Patch{Target: p.Target, Patch: patchValue(p.Patch)})
	}
}

func (v *conversion) images(images []stacks.Image) {
	if len(images) > 0 {
		v.override(v.components[0].Name, "images", images)
	}
}

// decryption keeps the reference to the keys. What is encrypted can't be compared.
func (v *conversion) decryption(spec *kustomizationSpec) {
	d := spec.Decryption
	switch {
	case d == nil:
	case d.SecretRef == nil:
		v.refuse("spec.decryption", "it names no Secret; create one with the keys, and set spec.decryption.secretRef")
	default:
		v.spec.Decryption = &appsv1.Decryption{Provider: d.Provider,
			SecretRef: fluxmeta.LocalObjectReference{Name: d.SecretRef.Name}}
	}
}

// health lists the checks that have no counterpart: an install is ready when all of its objects
// are.
func (v *conversion) health(spec *kustomizationSpec) {
	if len(spec.HealthChecks) > 0 {
		v.note("spec.healthChecks", "an install waits for all of its own objects; name others in spec.dependsOn")
	}
	if len(spec.HealthCheckExprs) > 0 {
		v.note("spec.healthCheckExprs", "set readyExpr of the component")
	}
	if len(spec.BuildMetadata) > 0 {
		v.note("spec.buildMetadata", "these annotations are not set; each rendered object has its file in the output "+
			"of kubectl ksctl render")
	}
}

// buildKustomization builds a folder as kustomize-controller does.
func buildKustomization(root, dir string, spec *kustomizationSpec) ([]map[string]any, error) {
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
	})
	if spec.CommonMetadata != nil {
		for _, o := range objects {
			setCommonMetadata(o, spec.CommonMetadata)
		}
	}
	return objects, err
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

// hasOtherManifests reports whether a component for the folder would read more than these files.
func hasOtherManifests(dir string, files []string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if rel, relErr := filepath.Rel(dir, file); err == nil && relErr == nil && !entry.IsDir() {
			switch filepath.Ext(file) {
			case ".json", ".yaml", ".yml", ".JSON", ".YAML", ".YML":
				found = found || !slices.Contains(files, filepath.ToSlash(rel))
			}
		}
		return err
	})
	return found
}
