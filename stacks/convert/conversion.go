package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/internal/document"
)

// Problem is a field, or a whole object, that is not converted.
type Problem struct {
	// File and Line of the field. Empty for an object of a cluster.
	File string
	Line int
	// Object that has the field.
	Object string
	Field  string
	// Message says why, and what to do instead.
	Message string
}

// String returns the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Object)
	if p.Field != "" {
		b.WriteString(": " + p.Field)
	}
	return b.String() + ": " + p.Message
}

// conversion is one object, and the stack and the install that it becomes.
type conversion struct {
	object *Object
	lines  document.Lines
	ref    reference
	// cluster is the folder of the objects of one cluster.
	cluster string

	components []stacks.Component
	// metadata of all objects, and variables, which become parameters of the stack.
	metadata  *stacks.CommonMetadata
	variables map[string]bool
	overrides map[string]map[string]any
	// own are settings of components that stand beside override in the install.
	own       map[string]appsv1.ComponentChoice
	spec      appsv1.KsctlInstallSpec
	namespace string
	// formerNamespace is that of an Application's destination.
	formerNamespace string
	// after are the objects of Flux or Argo CD that come before this one.
	after []dependency
	// source is written beside the install; nil if there is one already.
	source *sourceFile
	// wave is Argo CD's sync wave.
	wave int
	// chartRoots are the folders of the charts by component, and valuesFiles are files of the
	// repository for the chart of a HelmRelease.
	chartRoots  map[string]string
	valuesFiles []string
	// render returns the objects as the former tool renders them.
	render func() ([]map[string]any, error)

	// files and folders of the repository that it renders.
	files   map[string]bool
	folders []string
	// kept is true for a parent, which stays.
	kept bool

	// release is that of a HelmRelease.
	release stacks.Release

	stack, install string
	file           string
	objects        int

	refused []Problem
	notes   []Problem
}

type dependency struct {
	apiVersion string
	reference
	readyExpr string
}

func (v *conversion) problem(field, message string) Problem {
	p := Problem{File: v.object.File, Object: v.ref.String(), Field: field, Message: message}
	if o := v.object; o.File != "" && (o.parent == nil || o.inFile() && o.node == o.given[0].node) {
		p.Line = v.lines.Of(field)
	}
	return p
}

// refuse adds a reason why the object can't be converted.
func (v *conversion) refuse(field, message string) {
	v.refused = append(v.refused, v.problem(field, message))
}

// note adds a field that the install lacks, although the objects are the same.
func (v *conversion) note(field, message string) {
	v.notes = append(v.notes, v.problem(field, message))
}

func (v *conversion) sourceRef(s sourceRef) {
	v.spec.SourceRef = appsv1.SourceRef{Kind: s.Kind, Name: s.Name}
	if s.Namespace != v.namespace {
		v.spec.SourceRef.Namespace = s.Namespace
	}
}

func (v *conversion) schedule(interval, retry, timeout *metav1.Duration, suspend bool) {
	v.spec.Interval, v.spec.RetryInterval, v.spec.Timeout = interval, retry, timeout
	if suspend {
		v.note("spec.suspend", "the install is not suspended, so that it takes the objects over")
	}
}

func (v *conversion) kubeConfig(k *fluxKubeConfig) {
	switch {
	case k == nil:
	case k.SecretRef == nil:
		v.refuse("spec.kubeConfig", "only a kubeconfig in a Secret is converted; create a KsctlCluster, and name it "+
			"in "+
			"spec.clusterRef of an install")
	default:
		v.spec.KubeConfig = &appsv1.KubeConfigReference{
			SecretRef: appsv1.SecretKeyReference{Name: k.SecretRef.Name, Key: k.SecretRef.Key}}
	}
}

// pruning sets what happens to objects that left the stack, and to all when the install is deleted.
func (v *conversion) pruning(prune bool, deletionPolicy string) {
	if !prune {
		v.spec.Prune = new(bool)
	}
	if deletionPolicy == "Orphan" || deletionPolicy != "Delete" && deletionPolicy != "WaitForTermination" && !prune {
		v.spec.DeletionPolicy = appsv1.DeletionOrphan
	}
}

// exactName matches the regular expressions that select exactly one name.
var exactName = regexp.MustCompile(`^[A-Za-z0-9.-]*$`)

func (v *conversion) ignored(rules []fluxIgnoreRule) {
	for i, r := range rules {
		rule := appsv1.IgnoreRule{Paths: r.Paths}
		if t := r.Target; t != nil {
			if t.LabelSelector != "" || t.AnnotationSelector != "" || t.Version != "" ||
				!exactName.MatchString(t.Kind+t.Name+t.Namespace+t.Group) {
				v.note(fmt.Sprintf("spec.ignore[%d]", i), "targets are selected by group, kind, namespace and name "+
					"only; "+
					"add the rule to spec.drift.ignore of the install")
				continue
			}
			rule.Target = &appsv1.IgnoreTarget{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
		}
		v.drift().Ignore = append(v.drift().Ignore, rule)
	}
}

func (v *conversion) drift() *appsv1.Drift {
	if v.spec.Drift == nil {
		v.spec.Drift = &appsv1.Drift{}
	}
	return v.spec.Drift
}

func (v *conversion) dependsOn(apiVersion, kind string, all []fluxDependency) {
	for i, d := range all {
		if d.ReadyExpr != "" {
			v.note(fmt.Sprintf("spec.dependsOn[%d].readyExpr", i), "it is an expression over both objects; an install "+
				"waits until the other one is ready")
		}
		namespace := d.Namespace
		if namespace == "" {
			namespace = v.ref.namespace
		}
		v.after = append(v.after, dependency{apiVersion: apiVersion,
			reference: reference{kind, namespace, d.Name}})
	}
}

func (v *conversion) setChartRoot(component, folder string) {
	if v.chartRoots == nil {
		v.chartRoots = map[string]string{}
	}
	v.chartRoots[component] = folder
}

func text(s string) stacks.Text { return stacks.Text{Text: s} }

// setOwn changes a setting of a component of the install.
func (v *conversion) setOwn(component string, change func(*appsv1.ComponentChoice)) {
	if v.own == nil {
		v.own = map[string]appsv1.ComponentChoice{}
	}
	choice := v.own[component]
	change(&choice)
	v.own[component] = choice
}

// prefixed sets the prefix and the suffix of the names of a component, in the install: they often
// are those of a cluster.
func (v *conversion) prefixed(component, prefix, suffix string) {
	if prefix+suffix != "" {
		v.setOwn(component, func(own *appsv1.ComponentChoice) { own.NamePrefix, own.NameSuffix = prefix, suffix })
	}
}

// override sets a reserved key of an override of the install.
func (v *conversion) override(component, key string, value any) {
	if v.overrides == nil {
		v.overrides = map[string]map[string]any{}
	}
	if v.overrides[component] == nil {
		v.overrides[component] = map[string]any{}
	}
	v.overrides[component][key] = value
}

// choices returns the components of the install.
func (v *conversion) choices() ([]appsv1.ComponentChoice, error) {
	var out []appsv1.ComponentChoice
	for _, c := range v.components {
		choice, isSet := v.own[c.Name]
		choice.Name = c.Name
		if override := v.overrides[c.Name]; override != nil {
			raw, err := json.Marshal(override)
			if err != nil {
				return nil, err
			}
			choice.Override, isSet = &apiextensionsv1.JSON{Raw: raw}, true
		}
		if isSet {
			out = append(out, choice)
		}
	}
	return out, nil
}

func localRef(ref *nameRef) *fluxmeta.LocalObjectReference {
	if ref == nil {
		return nil
	}
	return &fluxmeta.LocalObjectReference{Name: ref.Name}
}

// patchValue returns a patch as an object or a list; as text if it is neither.
func patchValue(text string) any {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err == nil && !strings.Contains(text, "\n---") {
		switch value.(type) {
		case map[string]any, []any:
			return value
		}
	}
	return text
}

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// label returns a DNS label that resembles a name.
func label(name string) string {
	out := strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return strings.Trim(out[:min(len(out), 63)], "-")
}

// base returns the name of the stack and of its component: that of the object, without the name of
// its cluster.
func (v *conversion) base() string {
	name, cluster := label(v.ref.name), label(path.Base(v.cluster))
	return cmp.Or(strings.TrimSuffix(strings.TrimPrefix(name, cluster+"-"), "-"+cluster), name)
}

// oneLine returns the text of an error without the path of the working copy.
func oneLine(text, work string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, work+"/", "")), " ")
}

// kustomizationFile returns the kustomization file of a folder; empty if there is none.
func kustomizationFile(dir string) (string, error) {
	file, _, err := kustomizationIn(filesys.MakeFsOnDisk(), dir)
	return file, err
}
