package kwok

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/internal/golden"
)

// Machines without a node must survive a restart of the agent.
func TestGoldenMachines(t *testing.T) {
	p := newProvisioner(t, `{"noNode": true}`)
	want := map[uint32]string{3: "medium", 10: "t3.large"}
	for index, size := range want {
		if err := p.setUnjoined(demo, index, size); err != nil {
			t.Fatal(err)
		}
	}
	path := p.ConfigFile + ".demo.machines" // the file name is part of the stored format
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "machines.json", data)
	if err := os.WriteFile(path, golden.Read(t, "machines.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := p.readUnjoined(demo); err != nil || !maps.Equal(got, want) {
		t.Errorf("the file is read as %v, %v", got, err)
	}
}

// Users write these files.
func TestGoldenConfig(t *testing.T) {
	fault := Fault{After: 2, Delay: metav1.Duration{Duration: time.Minute}, Panic: true, Pretend: true,
		Fail: &provisioner.Error{Code: "QuotaExceeded", Class: provisioner.OutOfResources, Message: "a message"}}
	q := resource.MustParse
	tiny := Size{CPU: q("500m"), Memory: q("512Mi"), EphemeralStorage: q("5Gi"), Pods: q("11")}
	full := Config{Sizes: map[string]Size{"tiny": tiny},
		ProviderID: NoProviderID, NoNode: true, List: fault, Create: fault, Delete: fault}
	golden.Complete(t, full)
	golden.JSON(t, "knobs.json", &full)
	if _, err := ReadConfig("testdata/golden/knobs.json"); err != nil {
		t.Error(err)
	}
}

// Nodes carry these labels. An earlier release may have created some of them.
func TestGoldenNodes(t *testing.T) {
	golden.Equal(t, "nodes.txt", []byte(strings.Join([]string{
		"label of the cluster: " + ClusterLabel, "label of the size: " + sizeLabel, "annotation: " + kwokAnnotation,
	}, "\n")+"\n"))
}
