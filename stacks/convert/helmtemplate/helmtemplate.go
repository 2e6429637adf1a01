// Package helmtemplate renders charts with Helm's own library, as helm template --include-crds
// does.
package helmtemplate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// helmVersion is the version that a released helm has. The linker sets it there.
const helmVersion = "v4.3.1"

// Options of a render.
type Options struct {
	Release, Namespace string
	// KubeVersion and APIVersions of the cluster.
	KubeVersion string
	APIVersions []string
	// Values is the content of a values file.
	Values []byte
	// WithoutCRDs leaves out the folder crds/, and SkipSchemaValidation does not check the values.
	WithoutCRDs, SkipSchemaValidation bool
}

// Render renders the chart in a folder or an archive, with its CRDs and its hooks for an install.
func Render(path string, o Options) ([]map[string]any, error) {
	loaded, err := loader.Load(path)
	if err != nil {
		return nil, err
	}
	values, err := loader.LoadValues(bytes.NewReader(o.Values))
	if err != nil {
		return nil, err
	}
	kube, err := common.ParseKubeVersion(o.KubeVersion)
	if err != nil {
		return nil, err
	}
	if want := loaded.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, kube.String()) {
		return nil, fmt.Errorf("the chart requires Kubernetes %s", want)
	}
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return nil, err
	}
	caps := &common.Capabilities{KubeVersion: *kube, APIVersions: common.VersionSet(o.APIVersions)}
	caps.HelmVersion.Version = helmVersion
	top, err := util.ToRenderValuesWithSchemaValidation(loaded, values,
		common.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}, caps,
		o.SkipSchemaValidation)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, top)
	if err != nil {
		return nil, err
	}
	text, err := manifest(loaded, files, !o.WithoutCRDs)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// manifest returns the documents of a release: CRDs, hooks except those that an install does not
// run, and manifests. A manifest counts that has the name of a hook: it comes after the hook.
func manifest(loaded *chart.Chart, files map[string]string, crds bool) (string, error) {
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	add := func(content string) { text.WriteString("---\n" + content + "\n") }
	if crds {
		for _, crd := range loaded.CRDObjects() {
			add(string(crd.File.Data))
		}
	}
	for _, h := range hooks {
		if slices.ContainsFunc(h.Events, func(e release.HookEvent) bool { return installEvents[e] }) {
			add(h.Manifest)
		}
	}
	for _, m := range manifests {
		add(m.Content)
	}
	return text.String(), nil
}

var installEvents = map[release.HookEvent]bool{release.HookPreInstall: true, release.HookPostInstall: true,
	release.HookPreUpgrade: true, release.HookPostUpgrade: true}

// parse returns the objects of a manifest, as kubectl reads them.
func parse(text string) ([]map[string]any, error) {
	var out []map[string]any
	docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := yaml.Unmarshal(doc, &object); err != nil {
			return nil, err
		}
		if items, isList := object["items"].([]any); isList {
			for _, item := range items {
				if inner, ok := item.(map[string]any); ok {
					out = append(out, inner)
				}
			}
		} else if len(object) > 0 {
			out = append(out, object)
		}
	}
}
