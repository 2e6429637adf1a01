package convert_test

import (
	"path/filepath"
	"strings"
	"testing"
)

const syncs = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: fleet, namespace: flux-system}
spec:
  interval: 5m
  path: ./clusters
  prune: true
  sourceRef: {kind: GitRepository, name: fleet}
`

const config = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
`

const release = `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: shop}
spec:
  interval: 5m
  chart: {spec: {chart: ./chart, sourceRef: {kind: GitRepository, name: fleet, namespace: flux-system}}}
`

// Objects of one name in other namespaces, and in files that nothing renders, are converted, too.
func TestConvertKeepsObjectsOfOneNameApart(t *testing.T) {
	root := write(t, map[string]string{
		"clusters/apps.yaml": strings.NewReplacer("name: fleet, namespace", "name: apps, namespace", "./clusters",
			"./apps").Replace(syncs),
		"apps/release.yaml":   release,
		"other/release.yaml":  strings.ReplaceAll(release, "namespace: shop", "namespace: other"),
		"second/release.yaml": release,
		"chart/Chart.yaml":    "apiVersion: v2\nname: chart\nversion: 1.0.0\n", "chart/templates/config.yaml": config})
	result, err := convertRepository(t, root, []string{"GitRepository flux-system/fleet"}, root)
	if err != nil {
		t.Fatal(err)
	}
	got := text(result)
	for _, want := range []string{"converted Kustomization flux-system/apps", "converted HelmRelease other/web",
		"--- second/web-install.yaml"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "converted HelmRelease shop/web"); n != 2 {
		t.Errorf("got %d of 2 releases in\n%s", n, got)
	}
}

// What stays with the object that renders it is listed.
func TestConvertListsWhatStaysWithItsParent(t *testing.T) {
	root := write(t, map[string]string{
		"clusters/apps.yaml": strings.Replace(syncs, "./clusters", "./apps", 1) +
			"  images: [{name: gone, newTag: '2'}]\n",
		"apps/config.yaml": config, "apps/release.yaml": release,
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n", "chart/templates/config.yaml": config})
	result, err := convertRepository(t, root, nil, root)
	if err != nil || len(result.Converted) != 0 || !strings.Contains(text(result),
		"HelmRelease shop/web: Kustomization flux-system/fleet, which renders it, is not converted") {
		t.Errorf("got %v\n%s", err, text(result))
	}
}

// A Kustomization is converted as its parent renders it: with its patches and its namespace.
func TestConvertUsesWhatTheParentRenders(t *testing.T) {
	root := write(t, map[string]string{
		"sync.yaml": syncs,
		"clusters/kustomization.yaml": `namespace: flux-system
resources: [apps.yaml]
patches:
- target: {kind: Kustomization}
  patch: '[{"op": "add", "path": "/spec/commonMetadata", "value": {"labels": {"team": "web"}}}]'
`,
		"clusters/apps.yaml": strings.NewReplacer("name: fleet, namespace: flux-system", "name: apps", "./clusters",
			"./apps").Replace(syncs),
		"apps/config.yaml": strings.Replace(config, "settings", "settings, namespace: web", 1)})
	result, err := convertRepository(t, root, nil, filepath.Join(root, "sync.yaml"), filepath.Join(root, "clusters"))
	if err != nil {
		t.Fatal(err)
	}
	got := text(result)
	for _, want := range []string{"converted Kustomization flux-system/apps", "--- clusters/apps-install.yaml",
		"metadata: {name: apps, namespace: flux-system}", "labels: {team: web}",
		"kept sync.yaml:1: Kustomization flux-system/fleet"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// Variables are those of the own cluster; a choice between several is not made.
func TestConvertReadsVariablesOfItsCluster(t *testing.T) {
	files := map[string]string{"apps/config.yaml": strings.Replace(config, "{a: b}", "\n  a: ${color}", 1)}
	for cluster, color := range map[string]string{"blue": "navy", "red": "wine"} {
		files["clusters/"+cluster+"/apps.yaml"] = strings.Replace(syncs, "./clusters", "./apps", 1) +
			"  postBuild: {substituteFrom: [{kind: ConfigMap, name: colors}]}\n"
		files["clusters/"+cluster+"/colors.yaml"] = strings.NewReplacer("settings", "colors, namespace: flux-system",
			"a: b", "color: "+color+", "+cluster+": x").Replace(config)
	}
	root := write(t, files)
	result, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	if err != nil || len(result.Converted) != 2 || len(result.Refused) != 0 {
		t.Errorf("got %v\n%s", err, text(result))
	}
	files["settings/colors.yaml"], files["other/colors.yaml"] = files["clusters/blue/colors.yaml"],
		files["clusters/red/colors.yaml"]
	delete(files, "clusters/blue/colors.yaml")
	delete(files, "clusters/red/colors.yaml")
	root = write(t, files)
	result, err = convertRepository(t, root, nil, root)
	if err != nil || len(result.Converted) != 0 || !strings.Contains(text(result),
		"there are several ConfigMap flux-system/colors with other content") {
		t.Errorf("got %v\n%s", err, text(result))
	}
}
