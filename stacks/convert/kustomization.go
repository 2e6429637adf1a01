package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

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
	v.render = func() ([]map[string]any, error) {
		return applyKustomization(c.work, dir, spec, v.fluxVariables(c, spec))
	}
	built, err := buildKustomization(c.work, dir, spec, v.readsFiles(c.work))
	var objects []map[string]any
	if err == nil {
		objects, err = v.render()
	}
	if err != nil {
		v.refuse("spec.path", "kustomize can't build it: "+oneLine(err.Error(), c.work))
	}
	if len(v.refused) > 0 {
		c.refused(v)
		return
	}
	if c.isParent(v, objects) {
		return
	}
	v.namespaces(c.work, dir, spec)
	v.settings(spec)
	if err := v.folder(c.work, dir); err != nil {
		v.refuse("spec.path", err.Error())
		c.refused(v)
		return
	}
	v.patches(spec.Patches)
	v.images(spec.Images)
	v.metadataAndNames(c.work, dir, spec)
	v.substituted(c, spec, built)
	v.separateReleases(objects)
	c.add(v)
}

// settings converts what does not change the objects of a Kustomization.
func (v *conversion) settings(spec *kustomizationSpec) {
	v.sourceRef(spec.SourceRef)
	v.schedule(spec.Interval, spec.RetryInterval, spec.Timeout, spec.Suspend)
	v.spec.ServiceAccountName, v.spec.TargetNamespace = spec.ServiceAccountName, spec.TargetNamespace
	v.spec.Force = spec.Force
	v.kubeConfig(spec.KubeConfig)
	v.pruning(spec.Prune, spec.DeletionPolicy)
	v.ignored(spec.Ignore)
	v.decryption(spec)
	v.dependsOn(kustomizeGroup+"/v1", "Kustomization", spec.DependsOn)
	v.health(spec)
}

// namespaces refuses a targetNamespace that moves objects: a stack leaves their namespaces as they
// are.
func (v *conversion) namespaces(work, dir string, spec *kustomizationSpec) {
	if spec.TargetNamespace == "" {
		return
	}
	without := *spec
	without.TargetNamespace = ""
	objects, err := buildKustomization(work, dir, &without, nil)
	if err != nil {
		v.refuse("spec.path", "kustomize can't build it: "+oneLine(err.Error(), work))
		return
	}
	for _, o := range objects {
		ref := (&Object{Value: o}).ref()
		if ref.namespace != "" && ref.namespace != spec.TargetNamespace {
			v.refuse("spec.targetNamespace", fmt.Sprintf("it moves %s; remove its namespace from the files, or set "+
				"namespace "+
				"in the kustomization.yaml", ref))
			return
		}
	}
}

// metadataAndNames sets what stacks have of the same name. A Kustomization replaces the prefix and
// the suffix of the kustomization, and a stack adds to them.
func (v *conversion) metadataAndNames(work, dir string, spec *kustomizationSpec) {
	if m := spec.CommonMetadata; m != nil {
		v.metadata = &stacks.CommonMetadata{Labels: m.Labels, Annotations: m.Annotations}
	}
	_, own, err := kustomizationIn(filesys.MakeFsOnDisk(), filepath.Join(work, dir))
	if err != nil || own == nil {
		own = &types.Kustomization{}
	}
	if spec.NamePrefix != "" && own.NamePrefix != "" {
		v.refuse("spec.namePrefix", "it replaces that of the kustomization.yaml; set it in one of both")
	}
	if spec.NameSuffix != "" && own.NameSuffix != "" {
		v.refuse("spec.nameSuffix", "it replaces that of the kustomization.yaml; set it in one of both")
	}
	for i := range v.components {
		v.prefixed(v.components[i].Name, spec.NamePrefix, spec.NameSuffix)
	}
	v.kustomizeComponents(filepath.Join(work, dir), "spec.components", spec.Components, spec.IgnoreMissingComponents)
}

// kustomizeComponents sets Components that the kustomization of the first component also uses.
func (v *conversion) kustomizeComponents(dir, field string, all []string, ignoreMissing bool) {
	var used []string
	for _, component := range all {
		if !ignoreMissing || fileExists(filepath.Join(dir, component)) {
			used = append(used, component)
		}
	}
	switch c := v.components[len(v.components)-1]; {
	case len(used) == 0:
	case c.Kustomize == nil:
		v.refuse(field, "Components need a kustomization.yaml; add one to the folder")
	default:
		v.setOwn(c.Name, func(own *appsv1.ComponentChoice) { own.KustomizeComponents = used })
	}
}

// usedVariable matches a variable in a text, and the operator of a default after its name.
var usedVariable = regexp.MustCompile(`\$\{([_a-zA-Z][_a-zA-Z0-9]*)([:=-]?)`)

// substituted turns the variables of postBuild into parameters of the stack. built are the objects
// before the substitution. Flux substitutes an empty text for an unknown variable.
func (v *conversion) substituted(c *converter, spec *kustomizationSpec, built []map[string]any) {
	b := spec.PostBuild
	if b == nil {
		return
	}
	own := map[string]string{}
	for name, value := range b.Substitute {
		own[name] = strings.ReplaceAll(value, "\n", "")
	}
	names := map[string]bool{}
	for name := range own {
		names[name] = true
	}
	v.parametersFrom(c, spec)
	all := v.fluxVariables(c, spec)
	if len(all) == 0 {
		if b.SubstituteStrategy == "Always" {
			v.refuse("spec.postBuild.substituteStrategy", "defaults are substituted where there are variables; "+
				"write one "+
				"to spec.postBuild.substitute")
		}
		return
	}
	expressions := map[string]stacks.Text{}
	for _, o := range built {
		text, _ := yaml.Marshal(o) // it was decoded from YAML
		for _, match := range usedVariable.FindAllStringSubmatch(string(text), -1) {
			_, known := all[match[1]]
			switch {
			case known:
				names[match[1]] = true
			case match[2] == "": // it has no default
				expressions[match[1]] = stacks.Text{}
			}
		}
	}
	v.variables = names
	for name := range names {
		expressions[name] = stacks.Text{Expr: parameterExpression(name)}
	}
	for i := range v.components {
		v.components[i].Variables = expressions
	}
	if raw, err := json.Marshal(own); err == nil && len(own) > 0 { // a map of texts
		v.spec.Parameters = &apiextensionsv1.JSON{Raw: raw}
	}
}

// parametersFrom makes the install read the ConfigMaps and Secrets with variables.
func (v *conversion) parametersFrom(c *converter, spec *kustomizationSpec) {
	for i, ref := range spec.PostBuild.SubstituteFrom {
		field := fmt.Sprintf("spec.postBuild.substituteFrom[%d]", i)
		data := c.allDataOf(v, reference{ref.Kind, v.namespace, ref.Name})
		if data == nil && !ref.Optional {
			v.refuse(field, fmt.Sprintf("%s %s is not among the objects; add it with -f", ref.Kind, ref.Name))
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if bytes.ContainsAny(data[key], "\n") {
				v.refuse(field, fmt.Sprintf("the key %s of %s %s has newlines, which Flux removes; remove "+
					"them", key, ref.Kind,
					ref.Name))
			}
		}
		v.spec.ParametersFrom = append(v.spec.ParametersFrom,
			appsv1.ParametersReference{Kind: ref.Kind, Name: ref.Name, Optional: ref.Optional})
	}
}

// fluxVariables returns the variables of postBuild as kustomize-controller reads them.
func (v *conversion) fluxVariables(c *converter, spec *kustomizationSpec) map[string]string {
	out := map[string]string{}
	if spec.PostBuild == nil {
		return out
	}
	for _, ref := range spec.PostBuild.SubstituteFrom {
		for key, value := range c.allDataOf(v, reference{ref.Kind, v.namespace, ref.Name}) {
			out[key] = strings.ReplaceAll(string(value), "\n", "")
		}
	}
	for name, value := range spec.PostBuild.Substitute {
		out[name] = strings.ReplaceAll(value, "\n", "")
	}
	return out
}

// reservedWords are the words of CEL that can't follow a dot.
var reservedWords = strings.Fields("as break const continue else false for function if import in let loop namespace " +
	"null package return true var void while")

// parameterExpression returns the expression of a parameter of the stack.
func parameterExpression(name string) string {
	if slices.Contains(reservedWords, name) {
		return "stack['" + name + "']"
	}
	return "stack." + name
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
		if d.ServiceAccountName != "" {
			v.note("spec.decryption.serviceAccountName", "keys are only read from the Secret")
		}
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
	if !spec.Wait && len(spec.HealthChecks) == 0 {
		v.note("spec.wait", "an install always waits for all of its objects, and dependants wait for it")
	}
	if len(spec.HealthCheckExprs) > 0 {
		v.note("spec.healthCheckExprs", "set readyExpr of the component")
	}
	if len(spec.BuildMetadata) > 0 {
		v.note("spec.buildMetadata", "these annotations are not set; each rendered object has its file in the output "+
			"of kubectl ksctl render")
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
