package plan

import (
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

func TestCheckName(t *testing.T) {
	for name, tc := range map[string]struct{ namespace, name, want string }{
		"usual":          {"ns", "a.b-c", ""},
		"cluster-scoped": {"", "system:node", ""},
		"upper case":     {"ns", "A", ""}, // some kinds allow it
		"slash":          {"ns", "a/b", "metadata.name may not contain '/': change it"},
		"percent":        {"ns", "a%2Fb", "metadata.name may not contain '%': change it"},
		"dot":            {"ns", ".", "metadata.name may not be '.': change it"},
		"two dots":       {"ns", "..", "metadata.name may not be '..': change it"},
		"longest":        {"ns", strings.Repeat("a", 253), ""},
		"too long": {"ns", strings.Repeat("a", 254),
			"metadata.name may not be longer than 253 bytes: change it"},
		"slash in namespace": {"n/s", "a", "metadata.namespace may not contain '/': change it"},
		"too long, namespace": {strings.Repeat("n", 254), "a",
			"metadata.namespace may not be longer than 253 bytes: change it"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckName(stacks.Ref{Kind: "ConfigMap", Namespace: tc.namespace, Name: tc.name}); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Earlier versions recorded objects with impossible names. Their entries are dropped without a
// request, however they leave.
func TestEntriesWithImpossibleNamesAreDropped(t *testing.T) {
	bad := entry("a/b", appsv1.EntryIntended)
	for name, tc := range map[string]struct {
		policy func(*Policies)
		plan   func(*Snapshot) Plan
	}{
		"prune":   {func(*Policies) {}, Reconcile},
		"release": {func(p *Policies) { p.Prune = false }, Reconcile},
		"hand over": {func(p *Policies) {
			p.HandoverTo = func(string) HandoverDecision { return HandoverDecision{To: &other} }
		}, Reconcile},
		"teardown": {func(*Policies) {}, Teardown},
		"orphan":   {func(p *Policies) { p.Orphan = true }, Teardown},
		"on request": {func(p *Policies) {
			p.RemovalRequest = func(*appsv1.InventoryEntry) *RemovalRequest { return &RemovalRequest{} }
		}, Removal},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.plan(fixture{entries: []appsv1.InventoryEntry{bad}, policy: tc.policy}.snapshot())
			expectEqual(t, "removals", verbs(p.Removals), "drop "+bad.ID)
			if len(p.Waits) > 0 {
				t.Errorf("waits: %+v", p.Waits)
			}
		})
	}
}
