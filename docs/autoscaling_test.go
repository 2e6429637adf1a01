package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	storagev1alpha1 "github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// fluxAPIVersion is the API version of Flux's Kustomization, whose types are not in this module.
const fluxAPIVersion = "kustomize.toolkit.fluxcd.io/v1"

// The YAML in docs/autoscaling.md has only fields that exist, in whole objects and in specs.
func TestAutoscalingYAMLIsValid(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme,
		storagev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	kinds := map[string]int{}
	for _, block := range blocks(t, "docs/autoscaling.md", "yaml") {
		if strings.Contains(block, "grpc_timeout") {
			continue
		}
		for object := range strings.SplitSeq(block, "\n---\n") {
			if strings.HasPrefix(object, "spec:") {
				object = "apiVersion: cluster.ksctl.com/v1\nkind: KsctlAutoScaler\nmetadata: {name: prod}\n" + object
			}
			var id struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(object), &id); err != nil {
				t.Fatalf("%v\n%s", err, object)
			}
			kinds[id.Kind]++
			if id.APIVersion == fluxAPIVersion {
				continue
			}
			if _, _, err := decoder.Decode([]byte(object), nil, nil); err != nil {
				t.Errorf("%v\n%s", err, object)
			}
		}
	}
	for kind, n := range map[string]int{"KsctlAutoScaler": 2, "ImportState": 1, "ServiceAccount": 1, "Kustomization": 1,
		"ClusterRole": 1} {
		if kinds[kind] != n {
			t.Errorf("%d of kind %s, want %d", kinds[kind], kind, n)
		}
	}
}

// docs/autoscaling.md has the file names, object names, versions and settings of Cluster Autoscaler
// that the controller uses.
func TestAutoscalingMatchesSettings(t *testing.T) {
	page := read(t, "docs/autoscaling.md")
	for _, name := range []string{settings.CloudConfigFile, settings.KubeConfigFile, "`" + settings.TLSDir + "`",
		settings.LeaseName, settings.StatusConfigMap,
		settings.DeploymentName("<name>"), settings.PrioritiesName("<name>"), settings.ClientSecretName("<name>"),
		clusterv1.PoolLabel} {
		if !strings.Contains(page, name) {
			t.Errorf("docs/autoscaling.md does not mention %s", name)
		}
	}
	for _, version := range []string{"v1.30.0", "v1.34.0", "v1.35.1", "v1.36.2", "v1.99.0"} {
		if v, err := settings.Version(&clusterv1.KsctlAutoScalerSpec{}, version); err != nil ||
			!strings.Contains(page, v) {
			t.Errorf("docs/autoscaling.md does not mention Cluster Autoscaler %q for Kubernetes %s (%v)", v, version,
				err)
		}
	}
	want := settings.CloudConfig("ksctl-gitops.ksctl-gitops-system.svc:9443")
	comment := regexp.MustCompile(` +#.*`)
	if !slices.ContainsFunc(blocks(t, "docs/autoscaling.md", "yaml"), func(b string) bool {
		return comment.ReplaceAllString(b, "") == want
	}) {
		t.Errorf("docs/autoscaling.md has no YAML block\n%s", want)
	}
}

// blocks returns the code blocks of a page in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("%s has no code block in %s", page, language)
	}
	return out
}
