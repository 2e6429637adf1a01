package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
)

// chartTemplate is the chart of a HelmRelease. A HelmChart has the same fields.
type chartTemplate struct {
	Chart                    string           `json:"chart"`
	Version                  string           `json:"version"`
	SourceRef                sourceRef        `json:"sourceRef"`
	Interval                 *metav1.Duration `json:"interval"`
	ReconcileStrategy        string           `json:"reconcileStrategy"`
	ValuesFiles              []string         `json:"valuesFiles"`
	IgnoreMissingValuesFiles bool             `json:"ignoreMissingValuesFiles"`
	Suspend                  bool             `json:"suspend"`
	Verify                   any              `json:"verify"`
}

// releaseAction has the fields of install and upgrade of a HelmRelease.
type releaseAction struct {
	CreateNamespace          bool   `json:"createNamespace"`
	CRDs                     string `json:"crds"`
	SkipCRDs                 bool   `json:"skipCRDs"`
	DisableHooks             bool   `json:"disableHooks"`
	DisableSchemaValidation  bool   `json:"disableSchemaValidation"`
	DisableOpenAPIValidation bool   `json:"disableOpenAPIValidation"`
	DisableOwnership         bool   `json:"disableTakeOwnership"`
	DisableWait              bool   `json:"disableWait"`
	DisableWaitForJobs       bool   `json:"disableWaitForJobs"`
	Force                    bool   `json:"force"`
	PreserveValues           bool   `json:"preserveValues"`
	CleanupOnFail            bool   `json:"cleanupOnFail"`
	Replace                  bool   `json:"replace"`
	Timeout                  any    `json:"timeout"`
	Strategy                 any    `json:"strategy"`
	Remediation              any    `json:"remediation"`
	ServerSideApply          any    `json:"serverSideApply"`
}

// helmReleaseSpec has the fields of a HelmRelease.
type helmReleaseSpec struct {
	Chart *struct {
		Metadata any           `json:"metadata"`
		Spec     chartTemplate `json:"spec"`
	} `json:"chart"`
	ChartRef           *sourceRef       `json:"chartRef"`
	Interval           *metav1.Duration `json:"interval"`
	KubeConfig         *fluxKubeConfig  `json:"kubeConfig"`
	Suspend            bool             `json:"suspend"`
	ReleaseName        string           `json:"releaseName"`
	TargetNamespace    string           `json:"targetNamespace"`
	StorageNamespace   string           `json:"storageNamespace"`
	DependsOn          []fluxDependency `json:"dependsOn"`
	Timeout            *metav1.Duration `json:"timeout"`
	MaxHistory         any              `json:"maxHistory"`
	ServiceAccountName string           `json:"serviceAccountName"`
	PersistentClient   any              `json:"persistentClient"`
	DriftDetection     *struct {
		Mode   string           `json:"mode"`
		Ignore []fluxIgnoreRule `json:"ignore"`
	} `json:"driftDetection"`
	Install    *releaseAction `json:"install"`
	Upgrade    *releaseAction `json:"upgrade"`
	Test       any            `json:"test"`
	Rollback   any            `json:"rollback"`
	Uninstall  any            `json:"uninstall"`
	ValuesFrom []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		ValuesKey  string `json:"valuesKey"`
		TargetPath string `json:"targetPath"`
		Optional   bool   `json:"optional"`
		Literal    bool   `json:"literal"`
	} `json:"valuesFrom"`
	Values         map[string]any  `json:"values" dialect:"helm"`
	CommonMetadata *commonMetadata `json:"commonMetadata"`
	PostRenderers  []struct {
		Kustomize *struct {
			Patches []fluxPatch    `json:"patches"`
			Images  []stacks.Image `json:"images"`
		} `json:"kustomize"`
	} `json:"postRenderers"`
	PostRenderStrategy string `json:"postRenderStrategy"`
	WaitStrategy       any    `json:"waitStrategy"`
	HealthCheckExprs   []any  `json:"healthCheckExprs"`
}

type helmRelease struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       helmReleaseSpec `json:"spec"`
	Status     any             `json:"status"`
}

// convertHelmRelease adds the conversion of a HelmRelease.
func (c *converter) convertHelmRelease(o *Object) {
	var r helmRelease
	v := c.begin(o, &r)
	if v == nil {
		return
	}
	spec := &r.Spec
	name := v.base()
	component := stacks.Component{Name: name, Helm: &stacks.Helm{}}
	if release := releaseNameOf(&r); release != name {
		component.Helm.ReleaseName = text(release)
	}
	v.spec.TargetNamespace = spec.TargetNamespace
	v.release = stacks.Release{Namespace: cmp.Or(spec.StorageNamespace, v.namespace), Name: releaseNameOf(&r)}
	if spec.Install != nil && spec.Install.CreateNamespace {
		component.Namespace, component.CreateNamespace = text(cmp.Or(spec.TargetNamespace, v.namespace)), true
		v.spec.TargetNamespace = ""
	}
	v.components = []stacks.Component{component}
	c.chartOfRelease(v, &r)
	if len(v.refused) > 0 {
		c.add(v)
		return
	}
	v.schedule(spec.Interval, nil, spec.Timeout, spec.Suspend)
	v.spec.ServiceAccountName = spec.ServiceAccountName
	v.kubeConfig(spec.KubeConfig)
	v.dependsOn(helmGroup+"/v2", "HelmRelease", spec.DependsOn)
	v.afterParent()
	v.releaseDrift(spec)
	c.releaseValues(v, spec)
	for _, p := range spec.PostRenderers {
		if p.Kustomize != nil {
			v.patches(p.Kustomize.Patches)
			v.images(p.Kustomize.Images)
		}
	}
	v.releaseActions(spec)
	v.render = func() ([]map[string]any, error) { return c.renderRelease(v, &r) }
	c.add(v)
}

// releaseNameOf returns the name that helm-controller gives the release.
func releaseNameOf(r *helmRelease) string {
	switch {
	case r.Spec.ReleaseName != "":
		return r.Spec.ReleaseName
	case r.Spec.TargetNamespace != "":
		return r.Spec.TargetNamespace + "-" + r.Metadata.Name
	}
	return r.Metadata.Name
}

// releaseValues sets the values: those of the HelmRelease override those of ConfigMaps and Secrets.
func (c *converter) releaseValues(v *conversion, spec *helmReleaseSpec) {
	component := v.components[0].Name
	for i, ref := range spec.ValuesFrom {
		field := fmt.Sprintf("spec.valuesFrom[%d]", i)
		if ref.TargetPath != "" {
			v.refuse(field+".targetPath", "a single value is not set at a path; write the values as a YAML document "+
				"in the "+
				ref.Kind)
			continue
		}
		if ref.Literal {
			v.refuse(field+".literal", "text is always read as YAML; write the values as a YAML document in the "+
				""+ref.Kind)
			continue
		}
		own := appsv1.ValuesReference{Kind: ref.Kind, Name: ref.Name, Component: component, Optional: ref.Optional}
		if ref.ValuesKey != "values.yaml" {
			own.Key = ref.ValuesKey
		}
		v.spec.ValuesFrom = append(v.spec.ValuesFrom, own)
		if _, ok := dataOf(c.known(), reference{ref.Kind, v.namespace, ref.Name}, stacks.ValuesKey(own)); !ok {
			v.note(field, fmt.Sprintf("the objects were compared without %s %s, which is not among them; add it "+
				"with -f",
				ref.Kind, ref.Name))
		}
	}
	if len(spec.Values) > 0 {
		v.override(component, "values", spec.Values)
	}
}

func (v *conversion) releaseDrift(spec *helmReleaseSpec) {
	d := spec.DriftDetection
	if d == nil {
		return
	}
	switch d.Mode {
	case "warn":
		v.drift().Mode = appsv1.DriftWarn
	case "disabled":
		v.drift().Mode = appsv1.DriftIgnore
	}
	v.ignored(d.Ignore)
}

// releaseActions lists what has no counterpart, and what has none yet.
func (v *conversion) releaseActions(spec *helmReleaseSpec) {
	for name, action := range map[string]*releaseAction{"install": spec.Install, "upgrade": spec.Upgrade} {
		if action == nil {
			continue
		}
		field := "spec." + name
		if action.SkipCRDs || action.CRDs == "Skip" && name == "install" {
			v.refuse(field+".crds", "CRDs of a chart are always installed; use a chart without the folder crds/")
		}
		if action.DisableHooks {
			v.refuse(field+".disableHooks", "hooks always run; remove them with a patch ($patch: delete) of the "+
				"component")
		}
		if action.DisableSchemaValidation {
			v.refuse(field+".disableSchemaValidation", "values are always checked; correct them")
		}
		if action.Remediation != nil || action.Strategy != nil {
			v.note(field, "there is no rollback: an install retries until its objects are ready")
		}
		v.spec.Force = v.spec.Force || action.Force
	}
	slices.SortFunc(v.refused, func(a, b Problem) int { return cmp.Compare(a.Field, b.Field) })
	slices.SortFunc(v.notes, func(a, b Problem) int { return cmp.Compare(a.Field, b.Field) })
	if spec.CommonMetadata != nil {
		v.refuse("spec.commonMetadata", "it is not part of a stack; set the labels in the values of the chart")
	}
	if nested(spec.Test, "enable") == true {
		v.note("spec.test", "tests run on request: kubectl ksctl test INSTALL")
	}
	if len(spec.HealthCheckExprs) > 0 {
		v.note("spec.healthCheckExprs", "set readyExpr of the component")
	}
}

// renderRelease renders a release with Helm's library, as helm-controller does.
func (c *converter) renderRelease(v *conversion, r *helmRelease) ([]map[string]any, error) {
	values := map[string]any{}
	for _, file := range v.valuesFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := mergeYAML(values, data); err != nil {
			return nil, err
		}
	}
	for _, ref := range v.spec.ValuesFrom {
		data, ok := dataOf(c.known(), reference{ref.Kind, v.namespace, ref.Name}, stacks.ValuesKey(ref))
		if !ok {
			continue
		}
		if err := mergeYAML(values, data); err != nil {
			return nil, fmt.Errorf("%s is no YAML", stacks.ValuesSource(ref))
		}
	}
	mergeMaps(values, r.Spec.Values)
	namespace := cmp.Or(r.Spec.TargetNamespace, v.namespace)
	objects, err := c.helmTemplate(v, v.components[0].Name, releaseNameOf(r), namespace, values)
	for _, p := range r.Spec.PostRenderers {
		if p.Kustomize == nil || err != nil {
			continue
		}
		objects, err = buildObjects(objects, func(k *types.Kustomization) {
			for _, patch := range p.Kustomize.Patches {
				k.Patches = append(k.Patches, types.Patch{Patch: patch.Patch, Target: selector(patch.Target)})
			}
			for _, image := range p.Kustomize.Images {
				k.Images = append(k.Images, kustomizeImage(image))
			}
		})
	}
	return objects, err
}

// helmTemplate renders the chart of a component.
func (c *converter) helmTemplate(v *conversion, component, release, namespace string,
	values map[string]any) ([]map[string]any, error) {
	data, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	root := v.chartRoots[component]
	if root == "" {
		return nil, fmt.Errorf("its chart was not fetched")
	}
	return helmtemplate.Render(root, helmtemplate.Options{Release: release, Namespace: namespace,
		KubeVersion: c.opts.Capabilities.KubeVersion, APIVersions: c.opts.Capabilities.APIVersions, Values: data})
}

func mergeYAML(into map[string]any, data []byte) error {
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		return err
	}
	mergeMaps(into, values)
	return nil
}

// mergeMaps merges values as helm-controller does: mappings by key, everything else as a whole.
func mergeMaps(into, from map[string]any) {
	for key, value := range from {
		below, isMap := value.(map[string]any)
		if have, ok := into[key].(map[string]any); ok && isMap {
			mergeMaps(have, below)
			continue
		}
		if isMap {
			clone := map[string]any{}
			mergeMaps(clone, below)
			value = clone
		}
		into[key] = value
	}
}

func convertValue(from map[string]any, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
