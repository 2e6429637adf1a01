package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
)

// argoSource converts one source of an Application.
type argoSource struct {
	c      *converter
	v      *conversion
	app    *application
	source *applicationSource
	field  string
	index  int
	all    []applicationSource
	// dir is the folder in the repository.
	dir string
}

// convert adds the components of the source. It returns the function that renders them as Argo CD
// does, or nil if the source is refused.
func (s *argoSource) convert() func() ([]map[string]any, error) {
	switch {
	case s.source.Plugin != nil:
		return s.refuse(".plugin", "config management plugins are not run; commit their output, and use it as "+
			"manifests")
	case s.usesEnvironment():
		return s.refuse("", "variables such as $ARGOCD_APP_NAME are not replaced; write the values")
	case s.source.Chart != "":
		return s.chartOfRepository()
	case !s.c.sources[s.source.RepoURL]:
		return s.refuse(".repoURL", s.source.RepoURL+notThisRepository)
	}
	dir, err := pathInRepository(s.source.Path)
	full := filepath.Join(s.c.work, dir)
	if err == nil {
		_, err = os.Stat(full)
	}
	if err != nil {
		return s.refuse(".path", fmt.Sprintf("%q can't be used: %s", s.source.Path, pathReason(err)))
	}
	s.dir = dir
	s.v.folders = append(s.v.folders, dir)
	for _, name := range []string{".argocd-source.yaml", ".argocd-source-" + s.app.Metadata.Name + ".yaml"} {
		if fileExists(filepath.Join(full, name)) {
			return s.refuse(".path", path.Join(dir, name)+" changes the source; move its fields to the Application, "+
				"and remove it")
		}
	}
	file, err := kustomizationFile(full)
	switch {
	case err != nil:
		return s.refuse(".path", oneLine(err.Error(), s.c.work))
	case s.source.Helm != nil || fileExists(filepath.Join(full, "Chart.yaml")):
		s.v.setChartRoot(s.name(), full)
		return s.helm(stacks.Helm{Chart: path.Join("../..", dir)}, "")
	case s.source.Kustomize != nil || file != "":
		return s.kustomize()
	}
	return s.directory()
}

func (s *argoSource) refuse(field, message string) func() ([]map[string]any, error) {
	s.v.refuse(s.field+field, message)
	return nil
}

// name returns the name of the component.
func (s *argoSource) name() string {
	rendered := slices.DeleteFunc(slices.Clone(s.all), func(o applicationSource) bool { return !o.renders() })
	if len(rendered) > 1 {
		return label(s.v.base() + "-" + cmp.Or(s.source.Name, s.source.Chart, path.Base(s.source.Path)))
	}
	return s.v.base()
}

// usesEnvironment reports whether Argo CD would replace variables of its build environment.
func (s *argoSource) usesEnvironment() bool {
	text, err := yaml.Marshal(s.source)
	return err == nil && (bytes.Contains(text, []byte("$ARGOCD_")) || bytes.Contains(text, []byte("${ARGOCD_")))
}

func (s *argoSource) chartOfRepository() func() ([]map[string]any, error) {
	url := strings.TrimSuffix(s.source.RepoURL, "/")
	if !strings.Contains(url, "://") {
		url = "oci://" + url
	}
	version := s.source.TargetRevision
	if !isExactVersion(version) {
		installed, _ := nested(s.app.Status, "sync", "revision").(string)
		if all, _ := nested(s.app.Status, "sync", "revisions").([]any); s.index < len(all) {
			installed, _ = all[s.index].(string)
		}
		if !isExactVersion(installed) {
			return s.refuse(".targetRevision", fmt.Sprintf("%q is not one version; set the version that is "+
				"installed now",
				version))
		}
		version = installed
	}
	return s.helm(stacks.Helm{Repository: url, Name: text(s.source.Chart)}, version)
}

// helm adds a chart. Argo CD's parameters become values of the install.
func (s *argoSource) helm(chart stacks.Helm, version string) func() ([]map[string]any, error) {
	h := s.source.Helm
	if h == nil {
		h = &applicationHelm{}
	}
	if h.SkipCrds {
		chart.CRDs = appsv1.CRDsSkip
	}
	chart.SkipSchemaValidation = h.SkipSchemaValidation
	if h.KubeVersion != "" || len(h.APIVersions) > 0 {
		s.v.note(s.field+".helm", "charts see the versions of the target cluster, not kubeVersion and apiVersions")
	}
	if h.Namespace != "" && h.Namespace != s.v.formerNamespace {
		return s.refuse(".helm.namespace", "the chart is rendered for another namespace than that of "+
			"spec.destination; set the same in both")
	}
	component := stacks.Component{Name: s.name(), Version: text(version), Namespace: text(h.Namespace)}
	release := cmp.Or(h.ReleaseName, s.app.Metadata.Name)
	switch release {
	case component.Name:
	case s.app.Metadata.Name: // it has the name of the cluster, so that clusters can share the stack
		s.v.setOwn(component.Name, func(own *appsv1.ComponentChoice) { own.ReleaseName = release })
	default:
		chart.ReleaseName = text(release)
	}
	files := s.valueFiles(h)
	for _, file := range files {
		chart.ValuesFiles = append(chart.ValuesFiles, path.Join("../..", file))
	}
	component.Helm = &chart
	all, own, err := s.values(h, files)
	if err != nil {
		return s.refuse(".helm", oneLine(err.Error(), s.c.work))
	}
	s.v.components = append(s.v.components, component)
	if len(own) > 0 {
		s.v.override(component.Name, "values", own)
	}
	return func() ([]map[string]any, error) {
		return s.c.helmTemplate(s.v, component.Name, all, &helmtemplate.Options{Release: release,
			Namespace: s.v.formerNamespace, WithoutCRDs: h.SkipCrds, SkipSchemaValidation: h.SkipSchemaValidation})
	}
}

// valueFiles returns the values files in the repository.
func (s *argoSource) valueFiles(h *applicationHelm) (out []string) {
	for i, file := range h.ValueFiles {
		field := fmt.Sprintf(".helm.valueFiles[%d]", i)
		name := path.Join(s.dir, file)
		if ref, rest, ok := strings.Cut(file, "/"); ok && strings.HasPrefix(ref, "$") {
			at := slices.IndexFunc(s.all, func(o applicationSource) bool { return "$"+o.Ref == ref })
			if at < 0 || !s.c.sources[s.all[at].RepoURL] {
				s.refuse(field, ref+" is not this repository; copy the file into it")
				continue
			}
			name = rest
		} else if strings.HasPrefix(file, "/") {
			name = file
		}
		clean, err := pathInRepository(name)
		missing := err != nil || !fileExists(filepath.Join(s.c.work, clean))
		switch {
		case missing && h.IgnoreMissingValueFiles:
		case missing || s.source.Chart != "" && !strings.HasPrefix(file, "$"):
			s.refuse(field, fmt.Sprintf("%q is not in the repository; copy the file into it", file))
		default:
			out = append(out, clean)
		}
	}
	return out
}

// values returns the values as Argo CD passes them to Helm, and those of them that the install sets
// above the files.
func (s *argoSource) values(h *applicationHelm, files []string) (all, own map[string]any, err error) {
	all, own = map[string]any{}, map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(s.c.work, file))
		if err == nil {
			err = mergeYAML(all, data)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if h.ValuesObject != nil {
		mergeMaps(own, h.ValuesObject)
	} else if err := mergeYAML(own, []byte(h.Values)); err != nil {
		return nil, nil, fmt.Errorf("values is no YAML: %w", err)
	}
	mergeMaps(all, own)
	before := map[string]any{}
	if err := convertValue(all, &before); err != nil {
		return nil, nil, err
	}
	if err := s.setParameters(all, h); err != nil {
		return nil, nil, err
	}
	mergeMaps(own, changedValues(before, all))
	return all, own, nil
}

// setParameters sets parameters in Helm's order: --set, --set-string, --set-file.
func (s *argoSource) setParameters(values map[string]any, h *applicationHelm) error {
	for _, asText := range []bool{false, true} {
		parse := strvals.ParseInto
		if asText {
			parse = strvals.ParseIntoString
		}
		for _, p := range h.Parameters {
			if p.ForceString != asText {
				continue
			}
			if err := parse(p.Name+"="+escapeCommas(p.Value), values); err != nil {
				return fmt.Errorf("the parameter %s can't be used: %w", p.Name, err)
			}
		}
	}
	for _, p := range h.FileParameters {
		clean, err := pathInRepository(path.Join(s.dir, p.Path))
		if err != nil {
			return err
		}
		err = strvals.ParseIntoFile(p.Name+"="+escapeCommas(clean), values, func(name []rune) (any, error) {
			data, err := os.ReadFile(filepath.Join(s.c.work, string(name)))
			return string(data), err
		})
		if err != nil {
			return fmt.Errorf("the parameter %s can't be used: %w", p.Name, err)
		}
	}
	return nil
}

// escapeCommas does what Argo CD does: a comma belongs to the value, except in a list {a,b}.
func escapeCommas(value string) string {
	if strings.HasPrefix(value, "{") && strings.HasSuffix(value, "}") {
		return value
	}
	var b strings.Builder
	for i := range len(value) {
		if value[i] == ',' && (i == 0 || value[i-1] != '\\') {
			b.WriteByte('\\')
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

// changedValues returns the values of after that differ from before.
func changedValues(before, after map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range after {
		have, ok := before[key]
		below, isMap := value.(map[string]any)
		if haveBelow, wasMap := have.(map[string]any); isMap && wasMap {
			if changed := changedValues(haveBelow, below); len(changed) > 0 {
				out[key] = changed
			}
		} else if !ok || !reflect.DeepEqual(have, value) {
			out[key] = value
		}
	}
	return out
}

// kustomize adds a kustomization.
func (s *argoSource) kustomize() func() ([]map[string]any, error) {
	k := s.source.Kustomize
	if k == nil {
		k = &applicationKustomize{}
	}
	component := stacks.Component{Name: s.name(), Namespace: text(k.Namespace),
		Kustomize: &stacks.Kustomize{Path: path.Join("../..", s.dir)}}
	s.namesAndMetadata(&component, k)
	for i, p := range k.Patches {
		text := p.Patch
		if p.Path != "" {
			data, err := os.ReadFile(filepath.Join(s.c.work, s.dir, p.Path))
			if err != nil {
				return s.refuse(fmt.Sprintf(".kustomize.patches[%d].path", i), fmt.Sprintf("%q is not in the "+
					"repository", p.Path))
			}
			text = string(data)
		}
		component.Patches = append(component.Patches, stacks.Patch{Target: p.Target, Patch: patchValue(text)})
	}
	var images []types.Image
	var own []stacks.Image
	for _, text := range k.Images {
		image := parseImage(text)
		own = append(own, image)
		images = append(images, kustomizeImage(image))
	}
	var replicas []types.Replica
	for i, r := range k.Replicas {
		count, err := strconv.ParseInt(fmt.Sprint(r.Count), 10, 64)
		if err != nil {
			return s.refuse(fmt.Sprintf(".kustomize.replicas[%d].count", i), "it is not a number")
		}
		replicas = append(replicas, types.Replica{Name: r.Name, Count: count})
	}
	s.v.components = append(s.v.components, component)
	s.v.kustomizeComponents(filepath.Join(s.c.work, s.dir), s.field+".kustomize.components", k.Components,
		k.IgnoreMissingComponents)
	if len(own) > 0 {
		s.v.override(component.Name, "images", own)
	}
	if len(replicas) > 0 {
		s.v.override(component.Name, "replicas", replicas)
	}
	return func() ([]map[string]any, error) {
		return buildFolder(filepath.Join(s.c.work, s.dir), func() (*types.Kustomization, error) {
			return nil, errors.New("there is no kustomization.yaml in " + s.dir)
		}, func(out *types.Kustomization) { s.edit(out, k, images, replicas) }, s.v.readsFiles(s.c.work))
	}
}

// edit changes a kustomization as Argo CD does with kustomize edit.
func (s *argoSource) edit(out *types.Kustomization, k *applicationKustomize, images []types.Image,
	replicas []types.Replica) {
	if k.NamePrefix != "" {
		out.NamePrefix = k.NamePrefix
	}
	if k.NameSuffix != "" {
		out.NameSuffix = k.NameSuffix
	}
	if k.Namespace != "" {
		out.Namespace = k.Namespace
	}
	for _, image := range images {
		same := func(i types.Image) bool { return i.Name == image.Name }
		out.Images = append(slices.DeleteFunc(out.Images, same), image)
	}
	for _, replica := range replicas {
		same := func(r types.Replica) bool { return r.Name == replica.Name }
		out.Replicas = append(slices.DeleteFunc(out.Replicas, same), replica)
	}
	if len(k.CommonLabels) > 0 {
		out.Labels = append(out.Labels, types.Label{Pairs: k.CommonLabels, IncludeSelectors: !k.LabelWithoutSelector,
			IncludeTemplates: k.LabelIncludeTemplates})
	}
	for key, value := range k.CommonAnnotations {
		if out.CommonAnnotations == nil {
			out.CommonAnnotations = map[string]string{}
		}
		out.CommonAnnotations[key] = value
	}
	for _, p := range k.Patches {
		out.Patches = append(out.Patches, types.Patch{Path: p.Path, Patch: p.Patch, Target: selector(p.Target),
			Options: patchOptions(p.Options)})
	}
	for _, component := range k.Components {
		if !k.IgnoreMissingComponents || fileExists(filepath.Join(s.c.work, s.dir, component)) {
			out.Components = append(out.Components, component)
		}
	}
}

func patchOptions(options map[string]bool) *types.PatchArgs {
	if len(options) == 0 {
		return nil
	}
	return &types.PatchArgs{AllowNameChange: options["allowNameChange"], AllowKindChange: options["allowKindChange"]}
}

// namesAndMetadata sets what stacks have of the same name, and refuses what differs.
func (s *argoSource) namesAndMetadata(component *stacks.Component, k *applicationKustomize) {
	s.v.prefixed(component.Name, k.NamePrefix, k.NameSuffix)
	_, own, err := kustomizationIn(filesys.MakeFsOnDisk(), filepath.Join(s.c.work, s.dir))
	if err == nil && own != nil && (k.NamePrefix != "" && own.NamePrefix != "" ||
		k.NameSuffix != "" && own.NameSuffix != "") {
		s.refuse(".kustomize", "namePrefix and nameSuffix replace those of the kustomization.yaml; set each in one "+
			"of both")
	}
	switch {
	case len(k.CommonLabels) == 0:
	case k.LabelWithoutSelector && !k.LabelIncludeTemplates:
		component.CommonMetadata = &stacks.CommonMetadata{Labels: k.CommonLabels}
	default:
		s.refuse(".kustomize.commonLabels", "labels of a stack are not in selectors and templates; set labels in the "+
			"kustomization.yaml")
	}
	if len(k.CommonAnnotations) > 0 {
		s.refuse(".kustomize.commonAnnotations", "annotations of a stack are not in templates; set "+
			"commonAnnotations in the "+
			"kustomization.yaml")
	}
	for i, p := range k.Patches {
		if len(p.Options) > 0 {
			s.refuse(fmt.Sprintf(".kustomize.patches[%d].options", i), "a patch has no options; move it to the "+
				"kustomization.yaml")
		}
	}
}

// parseImage parses an image of Argo CD: name=newName:tag, name:tag or name@digest.
func parseImage(text string) stacks.Image {
	name, rest, renamed := strings.Cut(text, "=")
	if !renamed {
		rest = text
	}
	var out stacks.Image
	base, digest, hasDigest := strings.Cut(rest, "@")
	if colon := strings.LastIndex(base, ":"); colon > strings.LastIndex(base, "/") {
		base, out.NewTag = base[:colon], base[colon+1:]
	}
	if hasDigest {
		out.Digest, out.NewTag = digest, ""
	}
	out.Name = base
	if renamed {
		out.Name, out.NewName = name, base
	}
	return out
}
