package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/golden"
)

// contributedTo returns an object with the field managers of its fields.
func contributedTo(entries ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ns", "name": "a", "uid": "uid"}}}
	u.SetManagedFields(entries)
	return u
}

// Only a field that is recorded is taken back, and neither from the owner of the object nor from
// another contribution.
func TestFieldsTaken(t *testing.T) {
	const field = `"f:data":{"f:k":{}}`
	ours, before := plan.ContributionManager(me, "c"), plan.ContributionManager(me, "before")
	theirs := plan.ContributionManager(other, "c")
	for name, tc := range map[string]struct {
		managers []metav1.ManagedFieldsEntry
		recorded string
		uid      string
		by       []string
		taken    bool
	}{
		"by kubectl": {managers: []metav1.ManagedFieldsEntry{fields("kubectl-edit", "Update", "v1", field)},
			recorded: ".data.k", by: []string{"kubectl-edit"}, taken: true},
		"not recorded": {managers: []metav1.ManagedFieldsEntry{fields("kubectl-edit", "Update", "v1", field)},
			recorded: ".data.other", by: []string{"kubectl-edit"}},
		"in another object": {managers: []metav1.ManagedFieldsEntry{fields("kubectl-edit", "Update", "v1", field)},
			recorded: ".data.k", uid: "before", by: []string{"kubectl-edit"}},
		"by the owner of the object": {managers: []metav1.ManagedFieldsEntry{
			fields("ksctl-gitops", "Apply", "v1", field)}, recorded: ".data.k", by: []string{"ksctl-gitops"}},
		"by another contribution": {managers: []metav1.ManagedFieldsEntry{fields(theirs, "Apply", "v1", field)},
			recorded: ".data.k", by: []string{theirs}},
		"by kubectl and another contribution": {managers: []metav1.ManagedFieldsEntry{
			fields(theirs, "Apply", "v1", field), fields("a", "Update", "v1", field)}, recorded: ".data.k",
			by: []string{"a", theirs}},
		"moved to another component": {managers: []metav1.ManagedFieldsEntry{fields(before, "Apply", "v1", field)},
			recorded: ".data.k", by: []string{before}, taken: true},
		"by managers of other fields": {managers: []metav1.ManagedFieldsEntry{
			fields(theirs, "Apply", "v1", `"f:data":{"f:x":{}}`), fields("a", "Update", "v1", field)},
			recorded: ".data.k", by: []string{"a"}, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := entry("a", appsv1.EntryContributed)
			e.Baseline = live.FieldHash(".data.z") + live.FieldHash(tc.recorded)
			if tc.uid != "" {
				e.UID = "before"
			}
			by, taken := fieldsTaken(me, &e, contributedTo(append(tc.managers, fields(ours, "Apply", "v1",
				`"f:data":{"f:z":{}}`))...), []string{".data.k"})
			if !slices.Equal(by, tc.by) || taken != tc.taken {
				t.Errorf("managers %v, taken %t", by, taken)
			}
		})
	}
}

func TestContributionPatch(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"a key": {
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`,
			`{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap",` +
				`"metadata":{"name":"a","namespace":"ns","resourceVersion":"7","uid":"u"}}`,
		},
		"our label and mark": {
			`{"kind":"ConfigMap","metadata":{"annotations":{"ksctl.com/mark":"x"},"labels":{"a":"b",` +
				`"ksctl.com/owner-id":"x"},"managedFields":[],"name":"a","resourceVersion":"1","uid":"old"}}`,
			`{"kind":"ConfigMap","metadata":{"labels":{"a":"b"},"name":"a","resourceVersion":"7","uid":"u"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			b, err := contributionPatch(json.RawMessage(tc.manifest), &it, precondition{uid: "u", resourceVersion: "7"})
			if err != nil || string(b) != tc.want {
				t.Errorf("got %s, %v", b, err)
			}
		})
	}
}

// The items of contributions stay when the owner of an object takes list items back, or takes an
// object over.
func TestContributionsKeepTheirItems(t *testing.T) {
	contribution := fields(plan.ContributionManager(other, "c"), "Apply", "v1",
		`"f:spec":{"f:ports":{"k:{\"port\":81}":{".":{},"f:port":{}}}}`, kustomized)
	added := fields("kubectl", "Update", "v1", `"f:spec":{"f:ports":{"k:{\"port\":82}":{".":{},"f:port":{}}}}`)
	own := fields("ksctl-gitops", "Apply", "v1", `"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}}}}`)
	out, moved, err := claimListItems([]metav1.ManagedFieldsEntry{own, contribution, added},
		[][]string{{"spec", "ports"}})
	if err != nil || !moved || !bytes.Equal(out[1].FieldsV1.GetRawBytes(), contribution.FieldsV1.GetRawBytes()) {
		t.Errorf("moved %t, %v: %v", moved, err, out)
	}
	if set, err := readSet(out[0].FieldsV1); err != nil || !strings.Contains(set.String(), "82") ||
		strings.Contains(set.String(), "81") {
		t.Errorf("ours: %v, %v", set, err)
	}
	if _, changed, err := migrateManagedFields([]metav1.ManagedFieldsEntry{own, contribution}, "v1", nil); changed ||
		err != nil {
		t.Errorf("a contribution counts as a former tool: %v", err)
	}
}

// Objects in clusters have these field managers, and inventories these hashes.
func TestGoldenContributions(t *testing.T) {
	var out bytes.Buffer
	remote := me
	remote.Cluster = "team.eu"
	for _, owner := range []plan.OwnerKey{me, other, remote} {
		for _, component := range []string{"c", "scrape-config"} {
			fmt.Fprintf(&out, "%s, component %s: %s\n", owner, component, plan.ContributionManager(owner, component))
		}
	}
	for _, path := range []string{".data.k", `.spec.ports[port=80,protocol="TCP"].name`} {
		fmt.Fprintf(&out, "%s: %s\n", path, live.FieldHash(path))
	}
	manager := plan.ContributionManager(me, "c")
	fmt.Fprintf(&out, "fields: %s\n", live.ContributedFields(contributedTo(fields(manager, "Apply", "v1",
		`"f:spec":{"f:ports":{"k:{\"port\":81}":{".":{},"f:port":{}}}}`)), manager))
	golden.Equal(t, "contributions.txt", out.Bytes())
}

// A contribution of which the API server may still handle a request is not forgotten.
func TestContributionAwaitsRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		hash  string
		state createState
		waits bool
	}{
		"recorded by another process": {waits: true},
		"recorded by this process":    {state: createState{known: true}},
		"without an answer": {state: createState{known: true, pendingUntil: noon.Add(time.Second)},
			waits: true},
		"without an answer, some time before": {state: createState{known: true, pendingUntil: noon}},
		"applied":                             {hash: "want"},
		"applied, a change without an answer": {hash: "want",
			state: createState{known: true, pendingUntil: noon.Add(time.Second)}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Options{})
			a := e.newExecutor(Pass{Owner: emptyOwner{}})
			a.unsettled = map[string]string{}
			entry := entry("a", appsv1.EntryContributed)
			entry.Hash = tc.hash
			if tc.state.known {
				e.creates.record(me.String(), entry.ID, tc.state)
			}
			a.awaitContribution(entry.ID, &entry, noon)
			if waits := a.unsettled[entry.ID] != "" && !a.settleAt.IsZero(); waits != tc.waits {
				t.Errorf("waits: %t", waits)
			}
		})
	}
}
