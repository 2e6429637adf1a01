package engine

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// FuzzClaim checks that an object with any metadata is ours only by our mark or by the recorded
// UID, and is never claimed against spec.adopt.
func FuzzClaim(f *testing.F) {
	owner := plan.OwnerKey{Installation: "ksctl", Cluster: plan.LocalCluster, Kind: "KsctlInstall", Namespace: "n",
		Name: "x"}
	ref := stacks.Ref{Kind: "ConfigMap", Namespace: "n", Name: "c"}
	f.Add(owner.String()+"|"+ref.ID(), "", `{"metadata":{}}`, "", uint8(0))
	f.Add(owner.String()+"|other_id__ConfigMap", "true",
		`{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"k"}}}`, "u", uint8(1))
	f.Add("a/b/c/d/e|"+ref.ID(), "", `{"metadata":{"uid":"u","annotations":{"argocd.argoproj.io/tracking-id":"a:b"}}}`,
		"u", uint8(2))
	f.Add("|", "x",
		`{"metadata":{"ownerReferences":[{"controller":true,"kind":"Y","name":"z"},{"controller":"yes"}],"labels":5}}`,
		"", uint8(0))
	f.Fuzz(func(t *testing.T, mark, adopted, text, recorded string, mode uint8) {
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) != nil || m == nil {
			t.Skip()
		}
		u := &unstructured.Unstructured{Object: m}
		if meta, ok := m["metadata"]; ok {
			if _, ok := meta.(map[string]any); !ok {
				t.Skip() // invalid for the API server
			}
		}
		ann := map[string]string{}
		maps.Copy(ann, u.GetAnnotations())
		ann[live.MarkAnnotation], ann[live.AdoptedAnnotation] = mark, adopted
		u.SetAnnotations(ann)
		adopt := []appsv1.AdoptMode{appsv1.AdoptUnowned, appsv1.AdoptNever, appsv1.AdoptAlways}[mode%3]
		state, err := claim(owner, ref, &appsv1.InventoryEntry{UID: types.UID(recorded)}, adopt, u)
		if err != nil {
			var owned *plan.OwnedByOtherError
			if !errors.As(err, &owned) || state != "" || owned.By == "" {
				t.Fatalf("state %q, %T: %v", state, err, err)
			}
			return
		}
		marked := mark == owner.String()+"|"+ref.ID()
		known := recorded != "" && recorded == string(u.GetUID())
		if !marked && !known &&
			(adopt == appsv1.AdoptNever || state == appsv1.EntryApplied && adopt != appsv1.AdoptAlways) {
			t.Fatalf("state %q of an object that is not ours, with adopt %s", state, adopt)
		}
	})
}

// FuzzInventory checks that an inventory from any status and chunks lists each id once, and that
// saving and loading it changes nothing.
func FuzzInventory(f *testing.F) {
	f.Add(`{"entries":[{"id":"n_a__ConfigMap","v":"v1","state":"Applied","hash":"h","baseline":"b"}]}`, `[]`, uint8(3))
	f.Add(`{"entries":[{"id":"a"},{"id":"a","state":"Done"}],"chunks":["c"],"removed":["b","a"]}`,
		`[{"metadata":{"name":"c"},"entries":[{"id":"b"},{"id":"d"}]},{"metadata":{"name":"e"},"entries":[{"id":"d"}]}]`, uint8(0))
	f.Add(`null`, `[{"metadata":{"name":"x"},"entries":[{"id":""}]}]`, uint8(1))
	f.Fuzz(func(t *testing.T, status, chunks string, drop uint8) {
		var st *appsv1.Inventory
		var cs []appsv1.KsctlInventory
		if json.Unmarshal([]byte(status), &st) != nil || json.Unmarshal([]byte(chunks), &cs) != nil {
			t.Skip()
		}
		names := map[string]bool{}
		for i := range cs {
			if cs[i].Name == "" || names[cs[i].Name] {
				t.Skip() // invalid for the API server
			}
			names[cs[i].Name] = true
		}
		slices.SortFunc(cs, func(a, b appsv1.KsctlInventory) int { return strings.Compare(a.Name, b.Name) })
		inv := plan.NewInventory(st, cs)
		if at := inv.Entries(); len(at) > 0 {
			inv.Remove(at[int(drop)%len(at)].ID)
		}
		inv.Put(appsv1.InventoryEntry{ID: "new_x__ConfigMap", State: appsv1.EntryIntended})
		want := inv.Entries()
		stored := map[string][]appsv1.InventoryEntry{}
		for i := range cs {
			stored[cs[i].Name] = cs[i].Entries
		}
		load := func() []appsv1.InventoryEntry {
			var all []appsv1.KsctlInventory
			for _, name := range slices.Sorted(maps.Keys(stored)) {
				c := appsv1.KsctlInventory{Entries: stored[name]}
				c.Name = name
				all = append(all, c)
			}
			return plan.NewInventory(inv.Status(), all).Entries()
		}
		if got := load(); !slices.Equal(got, want) {
			t.Fatalf("after writing the status: %v, want %v", got, want)
		}
		changed := slices.DeleteFunc(inv.Layout(func(n int) string {
			return "fresh-" + strconv.Itoa(n)
		}), func(c plan.Chunk) bool { return !inv.Dirty(c) })
		for _, c := range changed {
			if stored[c.Name] = c.Entries; len(c.Entries) == 0 {
				delete(stored, c.Name)
			}
			inv.MarkWritten(c)
		}
		if got := load(); !slices.Equal(got, want) {
			t.Fatalf("after writing the chunks: %v, want %v", got, want)
		}
	})
}
