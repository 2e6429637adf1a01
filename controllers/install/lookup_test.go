package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// A chart that looks up something else in each render is refused, and named.
func TestLookupRoundsAreBounded(t *testing.T) {
	for needed, want := range map[int]string{0: "", 3: "", 4: `component "shop": lookup of v1 Secret ns s3: `} {
		renders := 0
		render := func(_ context.Context, req stacks.Request) (stacks.Result, error) {
			v := generated.NewValues([]byte("key"))
			v.Lookups = map[string]generated.Lookup{}
			if req.Generate.Values["shop"] != nil {
				v = req.Generate.Values["shop"].Clone()
			}
			if renders < needed {
				q := generated.Query{APIVersion: "v1", Kind: "Secret", Namespace: "ns",
					Name: fmt.Sprintf("s%d", renders)}
				v.Lookups[q.String()] = generated.Lookup{For: "chart", Asked: true}
			}
			renders++
			return stacks.Result{Generated: map[string]*generated.Values{"shop": v}}, nil
		}
		var req stacks.Request
		first, _ := render(t.Context(), req)
		o := &owner{inv: plan.NewInventory(nil, nil)}
		res, err := renderWithLookups(t.Context(), o, nil, &req, first, render)
		if want == "" && (err != nil || len(res.Generated["shop"].AskedQueries()) > 0) ||
			want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%d rounds: got %v, want %q", needed, err, want)
		}
	}
}

func TestQueryMatches(t *testing.T) {
	secret := stacks.Ref{Kind: "Secret", Namespace: "ns", Name: "a"}
	node := stacks.Ref{Kind: "Node", Name: "a"}
	for _, tc := range []struct {
		kind, namespace, name string
		ref                   stacks.Ref
		want                  bool
	}{
		{"Secret", "ns", "a", secret, true}, {"Secret", "ns", "b", secret, false}, {"Secret", "", "a", secret, false},
		{"Secret", "ns", "", secret, true}, {"Secret", "", "", secret, true}, {"Secret", "other", "", secret, false},
		{"ConfigMap", "ns", "a", secret, false}, {"Node", "", "a", node, true}, {"Node", "ns", "a", node, false},
	} {
		q := queried{Query: generated.Query{Kind: tc.kind, Namespace: tc.namespace, Name: tc.name}}
		inv := plan.NewInventory(nil, nil)
		inv.Put(appsv1.InventoryEntry{ID: tc.ref.ID(), State: appsv1.EntryApplied})
		if got := q.matchesInventory(inv); got != tc.want {
			t.Errorf("%+v: got %t", tc, got)
		}
		inv.Put(appsv1.InventoryEntry{ID: tc.ref.ID(), State: appsv1.EntryIntended})
		if q.matchesInventory(inv) {
			t.Errorf("%+v: found before it is created", tc)
		}
	}
}
