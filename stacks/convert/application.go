package convert

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// applicationSource has the fields of a source of an Application.
type applicationSource struct {
	RepoURL        string                `json:"repoURL"`
	Path           string                `json:"path"`
	TargetRevision string                `json:"targetRevision"`
	Helm           *applicationHelm      `json:"helm"`
	Kustomize      *applicationKustomize `json:"kustomize"`
	Directory      *applicationDirectory `json:"directory"`
	Plugin         any                   `json:"plugin"`
	Chart          string                `json:"chart"`
	Ref            string                `json:"ref"`
	Name           string                `json:"name"`
	TagPrefix      string                `json:"tagPrefix"`
}

type applicationDirectory struct {
	Recurse bool   `json:"recurse"`
	Jsonnet any    `json:"jsonnet"`
	Exclude string `json:"exclude"`
	Include string `json:"include"`
}

type applicationKustomize struct {
	NamePrefix                string            `json:"namePrefix"`
	NameSuffix                string            `json:"nameSuffix"`
	Images                    []string          `json:"images"`
	CommonLabels              map[string]string `json:"commonLabels"`
	Version                   string            `json:"version"`
	CommonAnnotations         map[string]string `json:"commonAnnotations"`
	ForceCommonLabels         bool              `json:"forceCommonLabels"`
	ForceCommonAnnotations    bool              `json:"forceCommonAnnotations"`
	Namespace                 string            `json:"namespace"`
	CommonAnnotationsEnvsubst bool              `json:"commonAnnotationsEnvsubst"`
	Replicas                  []struct {
		Name  string `json:"name"`
		Count any    `json:"count"`
	} `json:"replicas"`
	Patches []struct {
		Path    string              `json:"path"`
		Patch   string              `json:"patch"`
		Target  *stacks.PatchTarget `json:"target"`
		Options map[string]bool     `json:"options"`
	} `json:"patches"`
	Components              []string `json:"components"`
	IgnoreMissingComponents bool     `json:"ignoreMissingComponents"`
	LabelWithoutSelector    bool     `json:"labelWithoutSelector"`
	KubeVersion             string   `json:"kubeVersion"`
	APIVersions             []string `json:"apiVersions"`
	LabelIncludeTemplates   bool     `json:"labelIncludeTemplates"`
}

type applicationHelm struct {
	ValueFiles []string `json:"valueFiles"`
	Parameters []struct {
		Name        string `json:"name"`
		Value       string `json:"value"`
		ForceString bool   `json:"forceString"`
	} `json:"parameters"`
	ReleaseName    string `json:"releaseName"`
	Values         string `json:"values"`
	FileParameters []struct {
		Name string `json:"name"`
		Path string `json:"path"`
	} `json:"fileParameters"`
	Version                 string         `json:"version"`
	PassCredentials         bool           `json:"passCredentials"`
	IgnoreMissingValueFiles bool           `json:"ignoreMissingValueFiles"`
	SkipCrds                bool           `json:"skipCrds"`
	ValuesObject            map[string]any `json:"valuesObject" dialect:"helm"`
	Namespace               string         `json:"namespace"`
	KubeVersion             string         `json:"kubeVersion"`
	APIVersions             []string       `json:"apiVersions"`
	SkipTests               bool           `json:"skipTests"`
	SkipSchemaValidation    bool           `json:"skipSchemaValidation"`
}

// applicationSpec has the fields of an Application of Argo CD.
type applicationSpec struct {
	Source      *applicationSource  `json:"source"`
	Sources     []applicationSource `json:"sources"`
	Destination struct {
		Server    string `json:"server"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"destination"`
	Project    string `json:"project"`
	SyncPolicy *struct {
		Automated *struct {
			Prune      bool  `json:"prune"`
			SelfHeal   bool  `json:"selfHeal"`
			AllowEmpty bool  `json:"allowEmpty"`
			Enabled    *bool `json:"enabled"`
		} `json:"automated"`
		SyncOptions              []string `json:"syncOptions"`
		Retry                    any      `json:"retry"`
		ManagedNamespaceMetadata any      `json:"managedNamespaceMetadata"`
	} `json:"syncPolicy"`
	IgnoreDifferences []struct {
		Group                 string   `json:"group"`
		Kind                  string   `json:"kind"`
		Name                  string   `json:"name"`
		Namespace             string   `json:"namespace"`
		JSONPointers          []string `json:"jsonPointers"`
		JQPathExpressions     []string `json:"jqPathExpressions"`
		ManagedFieldsManagers []string `json:"managedFieldsManagers"`
	} `json:"ignoreDifferences"`
	Info                 any `json:"info"`
	RevisionHistoryLimit any `json:"revisionHistoryLimit"`
	SourceHydrator       any `json:"sourceHydrator"`
}

type application struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       applicationSpec `json:"spec"`
	Operation  any             `json:"operation"`
	Status     any             `json:"status"`
}

// renders returns false for a source that only has values files.
func (s *applicationSource) renders() bool { return s.Ref == "" || s.Path != "" || s.Chart != "" }

// waveAnnotation is the order in which Argo CD syncs objects.
const waveAnnotation = "argocd.argoproj.io/sync-wave"

// sources returns the sources of an Application, with the paths of their fields.
func (s *applicationSpec) sources() (out []applicationSource, fields []string) {
	if s.Source != nil && len(s.Sources) == 0 {
		return []applicationSource{*s.Source}, []string{"spec.source"}
	}
	for i := range s.Sources {
		fields = append(fields, fmt.Sprintf("spec.sources[%d]", i))
	}
	return s.Sources, fields
}

// convertApplication adds the conversion of an Application of Argo CD.
func (c *converter) convertApplication(o *Object) {
	var a application
	v := c.begin(o, &a)
	if v == nil {
		return
	}
	if a.Spec.SourceHydrator != nil {
		v.refuse("spec.sourceHydrator", "hydrated manifests are not converted; convert an Application of its dry "+
			"source")
		c.refused(v)
		return
	}
	v.destination(&a)
	sources, fields := a.Spec.sources()
	var renders []func() ([]map[string]any, error)
	for i := range sources {
		s := &argoSource{c: c, v: v, app: &a, source: &sources[i], field: fields[i], index: i, all: sources}
		if !s.source.renders() {
			continue
		}
		if render := s.convert(); render != nil {
			renders = append(renders, render)
		}
	}
	if len(renders) == 0 && len(v.refused) == 0 {
		v.refuse("spec.source", "it renders nothing; set path or chart")
	}
	if len(v.refused) > 0 {
		c.refused(v)
		return
	}
	v.render = func() (all []map[string]any, err error) {
		for _, render := range renders {
			objects, err := render()
			if err != nil {
				return nil, err
			}
			all = append(all, objects...)
		}
		return all, nil
	}
	if !v.hasRepositoryChart() {
		objects, err := v.render()
		if err != nil {
			v.refuse(fields[0], "it can't be rendered: "+oneLine(err.Error(), c.work))
			c.refused(v)
			return
		}
		if c.isParent(v, objects) {
			return
		}
		v.noteHooks(objects)
	}
	v.syncPolicy(&a)
	v.wave, _ = strconv.Atoi(a.Metadata.Annotations[waveAnnotation])
	c.argoSourceFile(v, sources)
	c.add(v)
}

func (v *conversion) hasRepositoryChart() bool {
	return slices.ContainsFunc(v.components, func(c stacks.Component) bool {
		return c.Helm != nil && c.Helm.Repository != ""
	})
}

// destination sets the cluster and the namespaces.
func (v *conversion) destination(a *application) {
	d := &a.Spec.Destination
	v.formerNamespace = cmp.Or(d.Namespace, v.namespace)
	switch {
	case d.Name != "" && d.Name != "in-cluster":
		v.spec.ClusterRef = &appsv1.ClusterReference{Name: label(d.Name)}
		v.spec.TargetNamespace = d.Namespace
		v.note("spec.destination.name", fmt.Sprintf("create KsctlCluster %s in the namespace %s, with the "+
			"kubeconfig of "+
			"the cluster", label(d.Name), v.namespace))
	case d.Name == "" && d.Server != "" && d.Server != "https://kubernetes.default.svc":
		v.refuse("spec.destination.server", "a cluster is named, not given by its address; create a KsctlCluster, "+
			"and set "+
			"spec.destination.name")
	case d.Namespace != "":
		v.namespace = d.Namespace
	}
	if a.Spec.Project != "" && a.Spec.Project != "default" {
		v.note("spec.project", "there are no projects: the service account of the install restricts what it may do")
	}
}

// syncPolicy sets pruning, drift and the options of a sync.
func (v *conversion) syncPolicy(a *application) {
	policy := a.Spec.SyncPolicy
	switch {
	case policy == nil || policy.Automated == nil || policy.Automated.Enabled != nil && !*policy.Automated.Enabled:
		v.note("spec.syncPolicy", "an install always applies a new revision; set spec.suspend to apply none. "+
			"It deletes nothing by itself, as before")
		v.spec.Prune = new(bool)
	default:
		if !policy.Automated.Prune {
			v.spec.Prune = new(bool)
		}
		if !policy.Automated.SelfHeal {
			v.drift().Mode = appsv1.DriftWarn
		}
	}
	if policy != nil {
		for i, option := range policy.SyncOptions {
			v.syncOption(fmt.Sprintf("spec.syncPolicy.syncOptions[%d]", i), option, a)
		}
		if policy.Retry != nil {
			v.note("spec.syncPolicy.retry", "an install always tries again; set spec.retryInterval")
		}
		if policy.Automated != nil && policy.Automated.AllowEmpty {
			v.note("spec.syncPolicy.automated.allowEmpty", "a stack always has a component")
		}
		if policy.ManagedNamespaceMetadata != nil {
			v.note("spec.syncPolicy.managedNamespaceMetadata", "add a manifest of the Namespace to the stack")
		}
	}
	for i, d := range a.Spec.IgnoreDifferences {
		if len(d.JQPathExpressions)+len(d.ManagedFieldsManagers) > 0 {
			v.note(fmt.Sprintf("spec.ignoreDifferences[%d]", i), "only jsonPointers are converted; add JSON "+
				"pointers, in "+
				"which [name=x] selects items, to spec.drift.ignore of the install")
		}
		if len(d.JSONPointers) > 0 {
			rule := appsv1.IgnoreRule{Paths: d.JSONPointers,
				Target: &appsv1.IgnoreTarget{Group: d.Group, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name}}
			v.drift().Ignore = append(v.drift().Ignore, rule)
		}
	}
}

// withoutMeaning are the options of a sync for which an install needs none: it always does that, or
// it needs no such choice.
var withoutMeaning = []string{"ServerSideApply=true", "PruneLast=true", "ApplyOutOfSyncOnly=true",
	"CreateNamespace=false", "RespectIgnoreDifferences=true", "SkipDryRunOnMissingResource=true",
	"FailOnSharedResource=true", "Validate=true", "PrunePropagationPolicy=foreground"}

func (v *conversion) syncOption(field, option string, a *application) {
	switch {
	case option == "CreateNamespace=true":
		v.components[0].Namespace.Text = cmp.Or(v.components[0].Namespace.Text, a.Spec.Destination.Namespace)
		v.components[0].CreateNamespace = v.components[0].Namespace.Text != ""
	case option == "Force=true":
		v.spec.Force = true
	case option == "Replace=true":
		v.note(field, "objects are applied, not replaced; set spec.force to re-create those with an immutable field "+
			"that changed")
	case !slices.Contains(withoutMeaning, option):
		v.note(field, option+" has no counterpart")
	}
}

// noteHooks lists hooks of Argo CD, which become ordinary objects.
func (v *conversion) noteHooks(objects []map[string]any) {
	for _, o := range objects {
		annotations, _ := nested(o, "metadata", "annotations").(map[string]any)
		if hook, _ := annotations["argocd.argoproj.io/hook"].(string); hook != "" {
			v.note("", fmt.Sprintf("the %s hook %s becomes an ordinary object: it is applied once, and again when it "+
				"changes; put it into a component of its own, with dependsOn", hook, (&Object{Value: o}).ref()))
		}
	}
}

// orderWaves makes Applications wait for those of the wave before, in the same cluster.
func (c *converter) orderWaves() {
	for _, v := range c.all {
		before := 0
		var previous []*conversion
		for _, other := range c.all {
			if other.ref.kind != "Application" || v.ref.kind != "Application" || other.cluster != v.cluster ||
				other.wave >= v.wave {
				continue
			}
			if len(previous) == 0 || other.wave > before {
				before, previous = other.wave, nil
			}
			if other.wave == before {
				previous = append(previous, other)
			}
		}
		for _, other := range previous {
			v.after = append(v.after, dependency{reference: other.ref})
		}
	}
}

// sourceFile is the KsctlSource of a repository, in a file beside installs.
type sourceFile struct {
	namespace, name string
	spec            appsv1.KsctlSourceSpec
}

// argoSourceFile sets the source of the install: a KsctlSource of the repository, in the namespace
// of the install, because references to others may be forbidden.
func (c *converter) argoSourceFile(v *conversion, sources []applicationSource) {
	url, revision := "", ""
	for _, s := range sources {
		if c.sources[s.RepoURL] {
			url, revision = s.RepoURL, s.TargetRevision
			break
		}
	}
	if url == "" { // only a chart: the stack is in the repository of the others
		for _, source := range c.opts.Objects {
			if source.is(argoGroup, "Application") && c.sources[repoURLOf(&source)] {
				url = repoURLOf(&source)
			}
		}
	}
	if url == "" {
		v.refuse("spec.source.repoURL", "no Application has a path in this repository; name the repository with "+
			"--source")
		return
	}
	name := label(strings.TrimSuffix(path.Base(url), ".git"))
	if cut, ok := strings.CutPrefix(url, "git@"); ok {
		url = "ssh://git@" + strings.Replace(cut, ":", "/", 1)
	}
	v.source = &sourceFile{namespace: v.namespace, name: name,
		spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: url, Ref: gitRef(revision)}}}
	v.spec.SourceRef = appsv1.SourceRef{Kind: appsv1.KsctlSourceKind, Name: name}
}

func gitRef(revision string) *appsv1.GitRef {
	switch {
	case revision == "" || revision == "HEAD":
		return nil
	case len(revision) == 40 && strings.Trim(revision, "0123456789abcdef") == "":
		return &appsv1.GitRef{Commit: revision}
	case isExactVersion(revision):
		return &appsv1.GitRef{Tag: revision}
	}
	return &appsv1.GitRef{Branch: revision}
}

// repoURLOf returns the repository of the first source of an Application that has a path.
func repoURLOf(o *Object) string {
	all, _ := nested(o.Value, "spec", "sources").([]any)
	for _, s := range append([]any{nested(o.Value, "spec", "source")}, all...) {
		if where, _ := nested(s, "path").(string); where != "" {
			url, _ := nested(s, "repoURL").(string)
			return url
		}
	}
	return ""
}
