package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/golden"
)

// goldenLog returns a log with a running operation, one for each result, and one without optional
// fields.
func goldenLog(t *testing.T) operationLog {
	t.Helper()
	at := time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	begun := record{ID: "01234567-dnfadx2xy800", From: 4, Desired: 2, Size: "medium",
		State: agentpb.Operation_RUNNING.String(), Started: at,
		Leaving: []nodeRef{{Name: "demo-vm-wp-3-abcde", UID: "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a"}}}
	b := operationLog{}
	for i, failure := range []agentpb.Operation_Failure{agentpb.Operation_FAILURE_UNSPECIFIED,
		agentpb.Operation_OUT_OF_RESOURCES, agentpb.Operation_OTHER, agentpb.Operation_DRAIN} {
		r := begun
		r.ID += "-" + string(rune('a'+i))
		r = r.finish(failure, "a <message> for people", at.Add(time.Minute))
		if failure == agentpb.Operation_DRAIN {
			golden.Complete(t, r)
		}
		b = b.withRecord(r)
	}
	least := record{ID: "least", State: agentpb.Operation_RUNNING.String()}
	return b.withRecord(begun).withRecord(least)
}

// An agent continues the operations that an earlier release recorded, and deletes no machine twice.
func TestGoldenOperationLog(t *testing.T) {
	for name, b := range map[string]operationLog{"operations-least.json": {}, "operations.json": goldenLog(t)} {
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, name, data)
		back, err := parseOperationLog(golden.Read(t, name))
		if err != nil || !reflect.DeepEqual(back, b) {
			t.Errorf("%s is read as %+v, %v", name, back, err)
		}
	}
}

// An agent finds the operations that an earlier release recorded in these places.
func TestGoldenStores(t *testing.T) {
	data := []byte(`{"operations":[]}`)
	folder := t.TempDir()
	if err := (&FileStore{Dir: folder}).Save(t.Context(), "demo", nil, data); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(folder, "demo.json")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file has %s, %v", got, err)
	}
	client := fake.NewClientset()
	if err := (&ConfigMapStore{Client: client, Namespace: "ksctl", Name: "operations"}).Save(t.Context(), "demo",
		nil, data); err != nil {
		t.Fatal(err)
	}
	cm, err := client.CoreV1().ConfigMaps("ksctl").Get(t.Context(), "operations", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cm.ManagedFields = nil // only the fake API server sets them
	golden.JSON(t, "configmap.json", cm)
}
