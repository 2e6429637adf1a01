package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks/state"
)

const goldenKubeConfig = `
apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: prod, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: 'https://api.example.com:6443'}}
users:
- {name: u, user: {token: not-a-secret}}
`

func goldenCluster(name string) *clusterv1.KsctlCluster {
	obj := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	obj.Spec.ArgoCD = &clusterv1.ArgoCDCluster{Namespace: "argocd"}
	return obj
}

// TestGoldenSecrets pins the Secrets that Flux and Argo CD read, and that users select by label.
func TestGoldenSecrets(t *testing.T) {
	access, err := kubeconfig.Read([]byte(goldenKubeConfig), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels := labelsOf(&clusterv1.ClusterFacts{Cloud: "aws", Region: "eu-north-1", Type: "selfmanaged",
		Distribution: "k3s"})
	full := goldenCluster("prod-eu")
	full.Spec.ArgoCD = &clusterv1.ArgoCDCluster{Namespace: "argocd", Name: "production", Project: "web"}
	golden.Complete(t, full.Spec.ArgoCD)
	plain := goldenCluster("prod-eu")
	plain.Spec.ArgoCD = nil
	for name, c := range map[string]struct {
		obj    *clusterv1.KsctlCluster
		k      clusterInfo
		labels map[string]string
	}{
		"least":       {plain, clusterInfo{access: access}, nil},
		"argocd":      {goldenCluster("prod-eu"), clusterInfo{access: access}, labels},
		"every-field": {full, clusterInfo{access: access}, labels},
		"given":       {full, clusterInfo{access: access, secret: "mine", key: "config"}, labels},
		"long":        {goldenCluster(strings.Repeat("x", 242)), clusterInfo{access: access}, labels},
	} {
		if c.labels == nil {
			c.labels = labelsOf(nil)
		}
		list, err := desiredSecrets(c.obj, c.k, c.labels)
		if err != nil {
			t.Fatal(err)
		}
		client := dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)
		var made []map[string]any
		for _, w := range list {
			if _, err := createSecret(t.Context(), client, w, ownerOf(c.obj)); err != nil {
				t.Fatal(err)
			}
			u, err := client.Resource(secretGVR).Namespace(w.name.Namespace).Get(t.Context(), w.name.Name,
				metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, u.Object)
		}
		golden.JSON(t, "secrets-"+name+".json", &made)
	}
}

// TestGoldenFacts pins the facts in statuses, and the labels that users select clusters by.
func TestGoldenFacts(t *testing.T) {
	files, err := filepath.Glob("../../stacks/state/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := state.Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Clusters {
			facts := struct {
				Facts  *clusterv1.ClusterFacts `json:"facts"`
				Labels map[string]string       `json:"labels"`
			}{Facts: factsOf(c)}
			facts.Labels = labelsOf(facts.Facts)
			golden.JSON(t, "facts-"+name, &facts)
		}
	}
}

// TestGoldenNames pins names and labels of stored objects, and names in statuses.
func TestGoldenNames(t *testing.T) {
	argocd := argoCDSecret(goldenCluster("prod-eu"), "argocd")
	if back, ok := parseNamespacedName(argocd.String()); !ok || back != argocd {
		t.Errorf("the name of the Argo CD Secret is parsed as %s", back)
	}
	golden.Equal(t, "names.txt", []byte(strings.Join([]string{
		"annotation of Secrets: " + OwnerAnnotation,
		"label of Secrets: " + clusterv1.ClusterLabel,
		"labels of clusters: " + strings.Join(selectorLabels, " "),
		"kubeconfig: " + secretSuffix + " " + secretKey,
		"Secret of Argo CD: " + argocd.String(),
	}, "\n")+"\n"))
}
