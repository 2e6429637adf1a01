package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
	"github.com/ksctl/gitops/stacks/internal/manifest"
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
		if ref.Literal {
			v.refuse(field+".literal", "text is always read as YAML; write the values as a YAML document in the "+
				""+ref.Kind)
			continue
		}
		own := appsv1.ValuesReference{Kind: ref.Kind, Name: ref.Name, Component: component, Optional: ref.Optional,
			TargetPath: ref.TargetPath}
		if ref.ValuesKey != "values.yaml" {
			own.Key = ref.ValuesKey
		}
		v.spec.ValuesFrom = append(v.spec.ValuesFrom, own)
		if _, ok := c.dataOf(v, reference{ref.Kind, v.namespace, ref.Name}, stacks.ValuesKey(own)); !ok {
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
	if d == nil { // helm-controller looks for none by default
		v.drift().Mode = appsv1.DriftIgnore
		return
	}
	switch d.Mode {
	case "warn":
		v.drift().Mode = appsv1.DriftWarn
	case "disabled", "":
		v.drift().Mode = appsv1.DriftIgnore
	}
	v.ignored(d.Ignore)
}

// releaseActions sets how CRDs, hooks and schemas are used, and lists what has no counterpart.
func (v *conversion) releaseActions(spec *helmReleaseSpec) {
	install, upgrade := cmp.Or(spec.Install, &releaseAction{}), cmp.Or(spec.Upgrade, &releaseAction{})
	helm := v.components[0].Helm
	// A chart of a repository is not fetched yet, and may have some.
	if root := v.chartRoots[v.components[0].Name]; root == "" || hasCRDs(root) {
		helm.CRDs = crdPolicy(install, upgrade)
	}
	switch {
	case install.DisableHooks && upgrade.DisableHooks:
		helm.Hooks = appsv1.HooksSkip
	case install.DisableHooks != upgrade.DisableHooks:
		v.note("spec.install.disableHooks", "hooks run or do not run in both, installs and upgrades; set hooks: "+
			"Skip of the "+
			"chart for none")
	}
	helm.SkipSchemaValidation = install.DisableSchemaValidation || upgrade.DisableSchemaValidation
	v.spec.Force = upgrade.Force
	if m := spec.CommonMetadata; m != nil {
		v.metadata = &stacks.CommonMetadata{Labels: m.Labels, Annotations: m.Annotations}
	}
	for _, f := range []struct {
		field, message string
		set            bool
	}{
		{"spec.install.remediation", "there is no rollback: an install retries until its objects are ready",
			install.Remediation != nil || install.Strategy != nil},
		{"spec.upgrade.remediation", "there is no rollback: an install retries until its objects are ready",
			upgrade.Remediation != nil || upgrade.Strategy != nil},
		{"spec.rollback", "there is no rollback: revert the commit", spec.Rollback != nil},
		{"spec.uninstall", "set deletionPolicy of the install", spec.Uninstall != nil},
		{"spec.test", "tests run on request: kubectl ksctl test INSTALL", nested(spec.Test, "enable") == true},
		{"spec.healthCheckExprs", "set readyExpr of the component", len(spec.HealthCheckExprs) > 0},
		{"spec.postRenderStrategy", "patches and images change hooks, too",
			spec.PostRenderStrategy != "" && spec.PostRenderStrategy != "combined"},
		{"spec.upgrade.preserveValues", "values of an earlier release are not kept; write them to values",
			upgrade.PreserveValues},
		{"spec.install.disableWait", "an install always waits for its objects",
			install.DisableWait || upgrade.DisableWait},
	} {
		if f.set {
			v.note(f.field, f.message)
		}
	}
}

// hasCRDs reports whether a chart may have CRDs: a folder crds, an archive or a dependency.
func hasCRDs(root string) bool {
	found := false
	_ = filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
		case entry.IsDir():
			found = found || entry.Name() == "crds"
		case entry.Name() == "requirements.yaml" || filepath.Ext(file) == ".tgz":
			found = true
		case entry.Name() == "Chart.yaml":
			var chart struct{ Dependencies []any }
			data, err := os.ReadFile(file)
			found = found || err == nil && yaml.Unmarshal(data, &chart) == nil && len(chart.Dependencies) > 0
		}
		return err
	})
	return found
}

// crdPolicy returns the policy for the CRDs of a chart. Flux creates them by default, and does not
// update them.
func crdPolicy(install, upgrade *releaseAction) appsv1.CRDPolicy {
	switch {
	case upgrade.CRDs == "CreateReplace":
		return "" // the default: Apply
	case (install.SkipCRDs || install.CRDs == "Skip") && (upgrade.CRDs == "" || upgrade.CRDs == "Skip"):
		return appsv1.CRDsSkip
	}
	return appsv1.CRDsCreateOnly
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
		data, ok := c.dataOf(v, reference{ref.Kind, v.namespace, ref.Name}, stacks.ValuesKey(ref))
		if !ok {
			continue
		}
		merge := mergeYAML
		if ref.TargetPath != "" {
			merge = func(values map[string]any, data []byte) error {
				return setPath(values, ref.TargetPath, string(data))
			}
		}
		if err := merge(values, data); err != nil {
			return nil, fmt.Errorf("%s can't be read as values", stacks.ValuesSource(ref))
		}
	}
	mergeMaps(values, r.Spec.Values)
	namespace := cmp.Or(r.Spec.TargetNamespace, v.namespace)
	install, upgrade := cmp.Or(r.Spec.Install, &releaseAction{}), cmp.Or(r.Spec.Upgrade, &releaseAction{})
	objects, err := c.helmTemplate(v, v.components[0].Name, values, &helmtemplate.Options{
		Release: releaseNameOf(r), Namespace: namespace,
		WithoutCRDs:          crdPolicy(install, upgrade) == appsv1.CRDsSkip,
		SkipSchemaValidation: install.DisableSchemaValidation || upgrade.DisableSchemaValidation})
	if install.DisableHooks && upgrade.DisableHooks {
		objects = slices.DeleteFunc(objects, func(o map[string]any) bool {
			annotations, _ := nested(o, "metadata", "annotations").(map[string]any)
			return annotations[manifest.HookAnnotation] != nil
		})
	}
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
	if m := r.Spec.CommonMetadata; m != nil {
		for _, o := range objects {
			setCommonMetadata(o, m)
		}
	}
	return objects, err
}

// helmTemplate renders the chart of a component with the options of the former tool.
func (c *converter) helmTemplate(v *conversion, component string, values map[string]any,
	options *helmtemplate.Options) (objects []map[string]any, err error) {
	root := v.chartRoots[component]
	if root == "" {
		return nil, fmt.Errorf("its chart was not fetched")
	}
	if options.Values, err = yaml.Marshal(values); err != nil {
		return nil, err
	}
	options.KubeVersion, options.APIVersions = c.opts.Capabilities.KubeVersion, c.opts.Capabilities.APIVersions
	return helmtemplate.Render(root, *options)
}

// setPath sets a value as helm-controller does: one in quotes is a text.
func setPath(values map[string]any, at, value string) error {
	for _, quote := range []string{"'", `"`} {
		if len(value) > 1 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return strvals.ParseIntoString(at+"="+strings.Trim(value, `'"`), values)
		}
	}
	return strvals.ParseInto(at+"="+value, values)
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
