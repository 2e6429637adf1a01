package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rendered renders the chart with values and returns the objects by kind and name.
func rendered(t *testing.T, release string, values map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	chart, err := loader.LoadDir("chart")
	if err != nil {
		t.Fatal(err)
	}
	all, err := commonutil.ToRenderValues(chart, values,
		common.ReleaseOptions{Name: release, Namespace: controllerNamespace, IsInstall: true},
		common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for _, document := range strings.Split("\n"+files[file], "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, document)
			}
			if len(u.Object) == 0 {
				continue
			}
			key := u.GetKind() + " " + u.GetName()
			if out[key] != nil {
				t.Errorf("%s is rendered twice", key)
			}
			out[key] = u
		}
	}
	return out
}

// commonFields returns a copy of an object without the fields in which chart and kustomization
// differ.
func commonFields(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	raw, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	u = &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	// Only the labels for the aggregation of ClusterRoles must be equal. The other labels name the
	// release.
	u.SetLabels(maps.Collect(func(yield func(string, string) bool) {
		for k, v := range u.GetLabels() {
			if strings.HasPrefix(k, "rbac.authorization.k8s.io/") && !yield(k, v) {
				return
			}
		}
	}))
	annotations := u.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	u.SetAnnotations(annotations)
	for _, path := range [][]string{{"spec", "selector"}, {"spec", "podSelector"},
		{"spec", "template", "metadata", "labels"}} {
		unstructured.RemoveNestedField(u.Object, path...)
	}
	if containers, ok, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers"); ok {
		for _, c := range containers {
			c, ok := c.(map[string]any)
			if !ok {
				t.Fatalf("a container has type %T", c)
			}
			delete(c, "image")
			delete(c, "imagePullPolicy")
		}
		if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec",
			"containers"); err != nil {
			t.Fatal(err)
		}
	}
	return u.Object
}

// The chart and the kustomization install the same objects.
func TestChartMatchesKustomization(t *testing.T) {
	got := rendered(t, "ksctl-gitops", nil)
	for _, want := range build(t, "default") {
		key := want.GetKind() + " " + want.GetName()
		if want.GetKind() == "Namespace" {
			continue // helm install --create-namespace creates it
		}
		u := got[key]
		if u == nil {
			t.Errorf("the chart has no %s", key)
			continue
		}
		delete(got, key)
		if a, b := commonFields(t, u), commonFields(t, want); !equality.Semantic.DeepEqual(a, b) {
			x, _ := yaml.Marshal(a)
			y, _ := yaml.Marshal(b)
			t.Errorf("%s: the chart has\n%s\nthe kustomization\n%s", key, x, y)
		}
	}
	for key := range got {
		t.Errorf("the kustomization has no %s", key)
	}
}

func TestChartSelectorsMatchPods(t *testing.T) {
	objects := rendered(t, "prod", map[string]any{"webhook": map[string]any{"enabled": true},
		"rest": map[string]any{"enabled": true, "certificateSecret": "rest-tls"}})
	pods, _, _ := unstructured.NestedStringMap(objects["Deployment prod-ksctl-gitops"].Object, "spec", "template",
		"metadata", "labels")
	for key, path := range map[string][]string{
		"Deployment prod-ksctl-gitops":      {"spec", "selector", "matchLabels"},
		"Service prod-ksctl-gitops":         {"spec", "selector"},
		"Service prod-ksctl-gitops-webhook": {"spec", "selector"},
		"Service prod-ksctl-gitops-rest":    {"spec", "selector"},
		"NetworkPolicy prod-ksctl-gitops":   {"spec", "podSelector", "matchLabels"},
	} {
		selector, ok, _ := unstructured.NestedStringMap(objects[key].Object, path...)
		if !ok || selector["app.kubernetes.io/instance"] != "prod" {
			t.Errorf("%s selects %v", key, selector)
		}
		for k, v := range selector {
			if pods[k] != v {
				t.Errorf("%s selects %s=%s, the pods have %v", key, k, v, pods)
			}
		}
	}
}

func TestChartValues(t *testing.T) {
	container := func(values map[string]any) map[string]any {
		list, _, _ := unstructured.NestedSlice(rendered(t, "ksctl-gitops", values)["Deployment ksctl-gitops"].Object,
			"spec", "template", "spec", "containers")
		return list[0].(map[string]any)
	}
	if got := container(map[string]any{"image": map[string]any{"repository": "r/c",
		"tag": "1"}})["image"]; got != "r/c:1" {
		t.Errorf("image %v", got)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	if got := container(map[string]any{"image": map[string]any{"repository": "r/c", "tag": "1",
		"digest": digest}})["image"]; got != "r/c@"+digest {
		t.Errorf("image %v", got)
	}
	var read map[string]any // numbers have the types that Helm reads from a values file
	if err := yaml.Unmarshal([]byte("flags: {artifact-max-bytes: 67108864, no-cross-namespace-refs: true, "+
		"kube-api-qps: 0.5}"), &read); err != nil {
		t.Fatal(err)
	}
	args := container(read)["args"].([]any)
	for _, want := range []any{"--artifact-max-bytes=67108864", "--no-cross-namespace-refs=true",
		"--kube-api-qps=0.5"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %v", want, args)
		}
	}
	pod := func(values map[string]any) map[string]string {
		u := rendered(t, "ksctl-gitops", values)["Deployment ksctl-gitops"]
		out, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
		return out
	}
	if got := pod(map[string]any{"podAnnotations": map[string]any{"prometheus.io/scrape": "false",
		"a": "b"}}); got["prometheus.io/scrape"] != "false" || got["a"] != "b" || got["prometheus.io/port"] != "8080" {
		t.Errorf("annotations of pods: %v", got)
	}
	for key := range rendered(t, "my.release", nil) {
		if strings.HasPrefix(key, "Service ") && key != "Service my-release-ksctl-gitops" {
			t.Errorf("%s", key)
		}
	}
	for _, want := range []string{"--storage-adv-addr=$(POD_IP):9090", "--nodegroup-adv-addr=$(POD_IP):9443"} {
		if args := container(map[string]any{"replicas": 2})["args"].([]any); !slices.Contains(args, any(want)) {
			t.Errorf("with two replicas, the leader must advertise its own address: got %v, want %s", args, want)
		}
	}
	for _, key := range []string{"CustomResourceDefinition ksctlinstalls.apps.ksctl.com",
		"CustomResourceDefinition ksctlsources.apps.ksctl.com"} {
		if got := rendered(t, "x", nil)[key].GetAnnotations()["helm.sh/resource-policy"]; got != "keep" {
			t.Errorf("%s: policy %q", key, got)
		}
		if rendered(t, "x", map[string]any{"crds": map[string]any{"install": false}})[key] != nil {
			t.Errorf("%s is rendered although crds.install is false", key)
		}
	}
}

func TestChartRejectsUnknownValues(t *testing.T) {
	chart, err := loader.LoadDir("chart")
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []map[string]any{
		{"replica": 2}, {"image": map[string]any{"digest": "latest"}},
		{"flags": map[string]any{"concurrent": []any{1}}}, {"goMemLimit": "1G"},
	} {
		if _, err := commonutil.ToRenderValues(chart, values, common.ReleaseOptions{Name: "x", Namespace: "y"},
			common.DefaultCapabilities); err == nil {
			t.Errorf("%v: got no error", values)
		}
	}
}

// Another folder of the repository may be that of another cluster.
func TestChartRequiresFolderOfREST(t *testing.T) {
	chart, err := loader.LoadDir("chart")
	if err != nil {
		t.Fatal(err)
	}
	values, err := commonutil.ToRenderValues(chart, map[string]any{"rest": map[string]any{"enabled": true,
		"certificateSecret": "rest-tls", "git": map[string]any{"source": "KsctlSource/a/b"}}},
		common.ReleaseOptions{Name: "ksctl-gitops", Namespace: controllerNamespace}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Render(chart, values); err == nil || !strings.Contains(err.Error(), "rest.git.path: set") {
		t.Errorf("got %v", err)
	}
}
