package importstate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

func TestAGoodStateHidesNoBadOneOfItsKey(t *testing.T) {
	good := document("demo", "a")
	bad := strings.Replace(good, "{", `{"cloud_infrastructure_state":{"aws":{}},`, 1)
	for name, docs := range map[string][]string{"the good one first": {good, bad}, "the bad one first": {bad, good}} {
		g := newGathering(state.Filter{})
		for i, doc := range docs {
			g.add(fmt.Sprintf("%d.json", i), &state.File{Clusters: []*state.Cluster{cluster(t, doc)}})
		}
		want := g.wishes(true)
		p := newPlan(want, statestore.Held{}, v1alpha1.ImportStateStatus{}, policy{hash: hashed})
		out, ok := p.outcome(want, place{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
		if !ok || out.Reason != InvalidStateReason || !strings.Contains(out.Err.Error(), "/cloud_infrastructure_state: it says nothing of civo") {
			t.Errorf("%s: got %+v", name, out)
		}
		if got := actions(p); got != demo+"=Create" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// etcd takes 1.5 MiB, and who wrote which field of a list comes on top.
func TestLinesOfRefusedDocumentsHaveBounds(t *testing.T) {
	for _, filling := range []string{"\x00", "\x7f", "\u2028", "<", `"`, `\`, "\xff", "ü", "\U0001F600", "a"} {
		long := strings.Repeat(filling, 300)
		g := newGathering(state.Filter{})
		for i := range maxClusters {
			c := cluster(t, document("demo", "a"))
			c.ID = state.ID{Cloud: long, Type: long, Name: fmt.Sprint(i) + long, Region: long}
			g.add(long, &state.File{Clusters: []*state.Cluster{c}})
		}
		p := newPlan(g.wishes(true), statestore.Held{}, v1alpha1.ImportStateStatus{}, policy{hash: hashed})
		var status v1alpha1.ImportStateStatus
		p.report(&status, place{namespace: "ksctl"})
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(status.Clusters) != maxClusters || len(data) > 1<<20 {
			t.Errorf("%q: %d lines in %d bytes", filling, len(status.Clusters), len(data))
		}
		if row := status.Clusters[0]; !utf8.ValidString(row.Key) || strings.ContainsFunc(row.Key+row.Message, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q: got %+v", filling, row)
		}
	}
}
