package reconcile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// fullInstall returns a KsctlInstall with content in every part of its status.
func fullInstall() *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{}
	in.Namespace, in.Name, in.ResourceVersion = "ns", "i", "7"
	// Go formats these durations differently: 90s as 1m30s.
	if err := json.Unmarshal([]byte(`{"interval":"90s","retryInterval":"0.5m"}`), &in.Spec.Schedule); err != nil {
		panic(err)
	}
	in.Spec.Stack = "secret-name-of-the-spec"
	in.Status.LastAppliedRevision = "r1"
	in.Status.Inventory = &appsv1.Inventory{Chunks: []string{"a"}, Removed: []string{"x"}}
	for i := range 1000 {
		in.Status.Inventory.Entries = append(in.Status.Inventory.Entries,
			appsv1.InventoryEntry{ID: fmt.Sprintf("ns_%d__ConfigMap", i), Version: "v1", State: appsv1.EntryApplied})
	}
	setConditions(in.CommonStatus(), effectsOf(Done{Message: "m"}), 1, metav1.NewTime(noon))
	return in
}

func TestStatusPatch(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*appsv1.KsctlInstall)
		// want is the patch of the status; empty: no patch.
		want string
	}{
		"nothing": {func(*appsv1.KsctlInstall) {}, ""},
		"metadata and the spec": {func(in *appsv1.KsctlInstall) {
			in.Labels = map[string]string{"a": "b"}
			in.Spec.Stack = "other"
		}, ""},
		"one field": {func(in *appsv1.KsctlInstall) {
			in.Status.LastAppliedRevision = "r2"
		}, `{"lastAppliedRevision":"r2"}`},
		"a removed field": {func(in *appsv1.KsctlInstall) {
			in.Status.LastAppliedRevision = ""
		}, `{"lastAppliedRevision":null}`},
		"an added field": {func(in *appsv1.KsctlInstall) {
			in.Status.StackVersion = "1.0.0"
		}, `{"stackVersion":"1.0.0"}`},
		"a removed nested field": {func(in *appsv1.KsctlInstall) {
			in.Status.Inventory.Removed = nil
		}, `{"inventory":{"removed":null}}`},
		"all of a nested field": {func(in *appsv1.KsctlInstall) { in.Status.Inventory = nil }, `{"inventory":null}`},
		"content of a nested field": {func(in *appsv1.KsctlInstall) {
			in.Status.Inventory = &appsv1.Inventory{Chunks: []string{"b"}}
		},
			`{"inventory":{"chunks":["b"],"entries":null,"removed":null}}`},
		"a long message": {func(in *appsv1.KsctlInstall) { in.Status.Warnings = []string{"<&>\u2028\"\\"} },
			`{"warnings":["\u003c\u0026\u003e\u2028\"\\"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := fullInstall()
			after := before.DeepCopy()
			tc.change(after)
			patch, err := statusPatch(before, after, "7")
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if patch != nil {
					t.Errorf("got the patch %s, want none", patch)
				}
				return
			}
			want := `{"metadata":{"resourceVersion":"7"},"status":` + tc.want + `}`
			if !jsonpatch.Equal(patch, []byte(want)) || len(patch) != len(want) {
				t.Errorf("got  %s\nwant %s", patch, want)
			}
			if strings.Contains(string(patch), "spec") {
				t.Error("the patch contains the spec, which belongs to Git")
			}
			assertPatched(t, before, after, patch)
		})
	}
}

// assertPatched fails unless the patch turns one status into the other.
func assertPatched(t *testing.T, before, after client.Object, patch []byte) {
	t.Helper()
	fields := func(o client.Object) []byte {
		f, err := statusFields(o)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(mustJSON(t, map[string]any{"status": f}))
	}
	got, err := jsonpatch.MergePatch(fields(before), patch)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc, "metadata")
	if !jsonpatch.Equal([]byte(mustJSON(t, doc)), fields(after)) {
		t.Errorf("the patched status is %.300s", got)
	}
}

func TestStatusPatchReplacesConditions(t *testing.T) {
	before := fullInstall()
	after := before.DeepCopy()
	setConditions(after.CommonStatus(), effectsOf(Waiting{On: "x"}), 2, metav1.NewTime(noon.Add(time.Hour)))
	patch, err := statusPatch(before, after, "7")
	if err != nil {
		t.Fatal(err)
	}
	assertPatched(t, before, after, patch)
	if len(patch) > 2000 {
		t.Errorf("a patch of %d bytes contains the unchanged inventory", len(patch))
	}
}

// A patch must not round the sizes of artifacts.
func TestStatusPatchKeepsNumbers(t *testing.T) {
	size := int64(1)<<53 + 1
	before, after := &appsv1.KsctlSource{}, &appsv1.KsctlSource{}
	after.Status.Artifact = &fluxmeta.Artifact{Revision: "r", LastUpdateTime: metav1.NewTime(noon), Size: &size}
	for name, b := range map[string]*appsv1.KsctlSource{"new": before,
		"changed": {Status: appsv1.KsctlSourceStatus{Artifact: &fluxmeta.Artifact{Revision: "q"}}}} {
		patch, err := statusPatch(b, after, "1")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"size":%d`, size); !strings.Contains(string(patch), want) {
			t.Errorf("%s: %s is not in %s", name, want, patch)
		}
	}
}

func TestStatusPatchFailsOnMarshalError(t *testing.T) {
	bad := &unwritable{KsctlInstall: fullInstall()}
	if _, err := statusPatch(bad, fullInstall(), "1"); err == nil {
		t.Error("no error")
	}
	if _, err := statusPatch(fullInstall(), bad, "1"); err == nil {
		t.Error("no error")
	}
}

type unwritable struct{ *appsv1.KsctlInstall }

func (unwritable) MarshalJSON() ([]byte, error) { return nil, fmt.Errorf("no") }
