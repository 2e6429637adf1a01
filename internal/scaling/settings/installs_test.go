package settings_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/settings"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/catalog"
)

var update = flag.Bool("update", false, "write the golden files")

// rendered returns the objects that an install from the catalog renders to, in YAML.
func rendered(t *testing.T, in *appsv1.KsctlInstall) []byte {
	t.Helper()
	files, err := catalog.FS(in.Spec.Stack, in.Spec.StackVersion)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.CopyFS(root, files); err != nil {
		t.Fatal(err)
	}
	req := stacks.Request{Root: root, Stack: in.Spec.Stack,
		Install:      stacks.Identity{Namespace: in.Namespace, Name: in.Name},
		Choices:      stacks.Choices{StackVersion: in.Spec.StackVersion, Strict: true},
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}}
	for _, c := range in.Spec.Components {
		choice := stacks.ComponentChoice{Name: c.Name, Enabled: c.Enabled}
		if c.Override != nil {
			if err := json.Unmarshal(c.Override.Raw, &choice.Override); err != nil {
				t.Fatal(err)
			}
		}
		req.Choices.Components = append(req.Choices.Components, choice)
	}
	res, err := stacks.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Warnings) > 0 {
		t.Errorf("warnings: %q", res.Warnings)
	}
	var out bytes.Buffer
	if err := res.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestDesiredInstalls compares the installs and the objects that the stack renders for them with
// the golden files.
func TestDesiredInstalls(t *testing.T) {
	for name, edit := range map[string]func(*clusterv1.KsctlAutoScaler){
		"least":      func(*clusterv1.KsctlAutoScaler) {},
		"everything": func(as *clusterv1.KsctlAutoScaler) { *as = *customized() },
		"off":        func(as *clusterv1.KsctlAutoScaler) { as.Spec.Mode = clusterv1.ScalingOff },
		"priorities": func(as *clusterv1.KsctlAutoScaler) {
			as.Name = "prod.eu"
			as.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
			as.Spec.ScaleUp = &clusterv1.ScaleUp{Expanders: []clusterv1.Expander{"Priority"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			as := minimal()
			edit(as)
			installs, err := settings.DesiredInstalls(as, inputs())
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for _, in := range installs {
				text, err := yaml.Marshal(map[string]any{"apiVersion": appsv1.GroupVersion.String(),
					"kind": "KsctlInstall", "metadata": in.ObjectMeta, "spec": in.Spec})
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("# The install\n---\n" + string(text) + "# What it leads to\n")
				got.Write(rendered(t, in))
			}
			compareGolden(t, filepath.Join("testdata", name+".yaml"), got.Bytes())
		})
	}
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", file, got)
	}
}

func TestDesiredInstallsIsEmptyWhenInstallIsDisabled(t *testing.T) {
	as := minimal()
	as.Spec.Autoscaler = &clusterv1.AutoscalerDeployment{Install: ptr.To(false)}
	if got, err := settings.DesiredInstalls(as, inputs()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestInstallsAreOwnedByTheAutoScaler(t *testing.T) {
	as := customized()
	got, err := settings.DesiredInstalls(as, inputs())
	if err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
	for _, in := range got {
		if owner := metav1.GetControllerOf(in); owner == nil || owner.UID != as.UID ||
			owner.Kind != "KsctlAutoScaler" || in.Spec.Suspend {
			t.Errorf("%s has the owner %v, suspended: %t", in.Name, owner, in.Spec.Suspend)
		}
	}
	if got[0].Spec.ClusterRef != nil || got[1].Spec.ClusterRef.Name != "prod-eu" {
		t.Errorf("got clusterRefs %v and %v", got[0].Spec.ClusterRef, got[1].Spec.ClusterRef)
	}
	got[0].Spec.Interval.Duration = 0
	if as.Spec.Interval.Duration == 0 {
		t.Error("an install shares memory with the KsctlAutoScaler")
	}
}
