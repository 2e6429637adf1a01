package handover

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

var definitionRef = stacks.Ref{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition",
	Name: "widgets.example.com"}

// A CustomResourceDefinition goes to any install of the cluster that wants it and may have it, and
// stays while one wants it.
func TestDefinitionIsHandedOverOrStays(t *testing.T) {
	id, here := definitionRef.ID(), []string{"ns"}
	serves := func(version string) *stacks.ServedKind { return &stacks.ServedKind{Versions: []string{version}} }
	wanted := func(version string) []plan.Component {
		return []plan.Component{{Name: "crds", Items: []plan.Item{{ID: id,
			Object: stacks.Object{Ref: definitionRef, Serves: serves(version)}}}}}
	}
	uses := func(in *appsv1.KsctlInstall) { in.Status.SharedDefinitions = []string{definitionRef.Name} }
	remote := func(in *appsv1.KsctlInstall) { in.Status.Cluster = "ns.east" }
	for name, tc := range map[string]struct {
		others []*appsv1.KsctlInstall
		// plans are the installs that planned the object, denied those that may not patch it, and
		// refused those that need another version.
		plans, denied, refused []string
		artifact               string
		newOwner               string
		keeps                  string
	}{
		"nobody wants it": {others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)}, artifact: "b"},
		"an install of another namespace and source": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)}, plans: []string{"o"}, artifact: "b",
			newOwner: "o"},
		"deletion: an install of another namespace": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)}, plans: []string{"o"}, newOwner: "o"},
		"after a restart, an install without a plan uses it": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere, uses)}, artifact: "b", newOwner: "o"},
		"an install of another cluster": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere, remote)}, plans: []string{"o"},
			artifact: "b"},
		"an install that is being deleted": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere, uses, deleting)}, artifact: "b"},
		"one of the namespace comes first": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere), install("p", "src2", here)},
			plans:  []string{"o", "p"}, artifact: "b", newOwner: "p"},
		"one that may patch it": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere), install("p", "src", here)},
			plans:  []string{"o", "p"}, denied: []string{"p"}, artifact: "b", newOwner: "o"},
		"none may patch it": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)}, plans: []string{"o"},
			denied: []string{"o"}, artifact: "b",
			keeps: "elsewhere/o uses it, and has a service account that may not patch"},
		"one of another namespace that needs another version": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)}, refused: []string{"o"}},
		"the same, and may not patch it": {
			others:  []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere)},
			refused: []string{"o"}, denied: []string{"o"}},
		"one that can use it comes before one of the namespace that cannot": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere), install("p", "src", here)},
			plans:  []string{"o"}, refused: []string{"p"}, newOwner: "o"},
		"one of the namespace that needs another version": {
			others:  []*appsv1.KsctlInstall{install("p", "src", here)},
			refused: []string{"p"}, newOwner: "p"},
		"one that takes over and needs another version": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here), install("p", "src", here, takesOverFrom("me"))},
			plans:  []string{"o"}, refused: []string{"p"}, newOwner: "p"},
		"one that is not suspended": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere),
				install("p", "src2", here, suspended)},
			plans: []string{"o", "p"}, newOwner: "o"},
		"all are suspended": {
			others: []*appsv1.KsctlInstall{install("o", "src2", here, elsewhere, uses, suspended)}, artifact: "b",
			keeps: "elsewhere/o uses it, and is suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlansTest()
			r.Update(install("me", "src", here))
			h := r.NewHandover(install("me", "src", here), plan.OwnerKey{Namespace: "ns", Name: "me"}, tc.artifact)
			for _, in := range tc.others {
				r.Update(in)
				for _, name := range tc.plans {
					if name == in.Name {
						r.RecordPlan(in, "b", wanted("v1"), false)
					}
				}
				for _, name := range tc.refused {
					if name == in.Name {
						r.RecordPlan(in, "b", wanted("v2"), false)
					}
				}
				for _, name := range tc.denied {
					if name == in.Name {
						h.Deny(id, client.ObjectKeyFromObject(in))
					}
				}
			}
			h.releasing.cluster = plan.LocalCluster
			h.Serves = func(string) *stacks.ServedKind { return serves("v1") }
			d := h.Decide(id)
			got := ""
			if d.To != nil {
				got = d.To.Name
			}
			if got != tc.newOwner || !strings.Contains(d.Keep, tc.keeps) || (d.Keep == "") != (tc.keeps == "") ||
				d.Wait+d.Leave != "" {
				t.Errorf("got %+v, want new owner %q, keep %q", d, tc.newOwner, tc.keeps)
			}
			if tc.keeps == "" {
				return
			}
			if r.enqueued = nil; d.On == nil || d.On.Name != "o" {
				t.Errorf("the decision is about %v", d.On)
			}
			r.RecordPlan(tc.others[0], "c", nil, false)
			if len(r.enqueued) != 1 || r.enqueued[0] != "me" {
				t.Errorf("enqueued %v when the install no longer wants it, want the owner", r.enqueued)
			}
			if d := h.Decide(id); d.Keep != "" || d.To != nil {
				t.Errorf("got %+v after that, want that nobody wants it", d)
			}
		})
	}
}

// An install that is removed as a whole claims nothing, also before the event of its status.
func TestDefinitionIsNotClaimedByInstallThatIsRemoved(t *testing.T) {
	id := definitionRef.ID()
	for name, tc := range map[string]struct {
		drop   func(*Plans, types.NamespacedName)
		claims bool
	}{
		"its state is read again":  {drop: (*Plans).DropPlan, claims: true},
		"it is removed as a whole": {drop: (*Plans).DropClaims},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlansTest()
			user := install("o", "src2", []string{"ns"}, func(in *appsv1.KsctlInstall) {
				in.Status.SharedDefinitions = []string{definitionRef.Name}
			})
			r.Update(user)
			tc.drop(r.Plans, client.ObjectKeyFromObject(user))
			if d := r.decideAndWatch(releasing("b"), id, noneIgnored); (d.newOwner != nil) != tc.claims {
				t.Errorf("got %+v, want that it claims the definition: %t", d, tc.claims)
			}
		})
	}
}

// An install of the same source keeps its claim until it has planned the revision.
func TestDefinitionWaitsForThePlanOfItsUserInTheSource(t *testing.T) {
	id := definitionRef.ID()
	wanted := []plan.Component{{Name: "crds", Items: []plan.Item{{Object: stacks.Object{Ref: definitionRef}, ID: id}}}}
	r := newPlansTest()
	user := install("o", "src", []string{"ns"}) // its inventory has no definition
	r.Update(user)
	r.RecordPlan(user, "a", wanted, false)
	if d := r.decideAndWatch(releasing("b"), id, noneIgnored); nameOf(d.pending) != "o" {
		t.Errorf("got %+v, want a wait for its plan", d)
	}
}
