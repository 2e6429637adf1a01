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

func TestInvalidStateIsReportedDespiteValidStateOfSameKey(t *testing.T) {
	good := document("demo", "a")
	bad := strings.Replace(good, "{", `{"cloud_infrastructure_state":{"aws":{}},`, 1)
	for name, docs := range map[string][]string{"valid state first": {good, bad}, "invalid state first": {bad, good}} {
		g := newCollector(state.Filter{})
		for i, doc := range docs {
			g.add(fmt.Sprintf("%d.json", i), &state.File{Clusters: []*state.Cluster{cluster(t, doc)}})
		}
		want := g.desired(true)
		p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
		out, ok := p.outcome(want, destination{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
		if !ok || out.Reason != v1alpha1.InvalidStateReason ||
			!strings.Contains(out.Err.Error(), "/cloud_infrastructure_state: no entry for civo") {
			t.Errorf("%s: got %+v", name, out)
		}
		if got := actions(p); got != demo+"=Create" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestKeyOfSeveralInvalidStatesIsNamedOnce(t *testing.T) {
	g := newCollector(state.Filter{})
	for i, doc := range []string{document("demo", "a"), document("demo", "b"), document("demo", "c")} {
		g.add(fmt.Sprintf("%d.json", i), &state.File{Clusters: []*state.Cluster{cluster(t, doc)}})
	}
	want := g.desired(true)
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
	out, _ := p.outcome(want, destination{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
	const differ = "have different states of the cluster: remove one of the two"
	if message := demo + ": 0.json and 1.json " + differ + ", 0.json and 2.json " + differ; out.Err == nil ||
		out.Err.Error() != message {
		t.Errorf("got %v, want %s", out.Err, message)
	}
}

func TestEmptyStateIsNamedByItsFile(t *testing.T) {
	g := newCollector(state.Filter{})
	f, err := state.Parse("a.json", []byte(`{"cluster_name":""}`))
	if err != nil {
		t.Fatal(err)
	}
	g.add("a.json", f)
	want := g.desired(true)
	p := newPlan(want, statestore.Contents{}, v1alpha1.ImportStateStatus{}, planOptions{hash: hashForTest})
	out, _ := p.outcome(want, destination{namespace: "ksctl"}, "r", false).(reconcile.Stalled)
	if out.Err == nil || !strings.HasPrefix(out.Err.Error(), "a.json: /") {
		t.Errorf("got %v", out.Err)
	}
}

// etcd limits an object to 1.5 MiB, including the managed fields of the list.
func TestRowsOfInvalidDocumentsAreBounded(t *testing.T) {
	for _, filling := range []string{"\x00", "\x7f", "\u2028", "<", `"`, `\`, "\xff", "ü", "\U0001F600", "a"} {
		long := strings.Repeat(filling, 300)
		g := newCollector(state.Filter{})
		for i := range maxClusters {
			c := cluster(t, document("demo", "a"))
			c.ID = state.ID{Cloud: long, Type: long, Name: fmt.Sprint(i) + long, Region: long}
			g.add(long, &state.File{Clusters: []*state.Cluster{c}})
		}
		p := newPlan(g.desired(true), statestore.Contents{}, v1alpha1.ImportStateStatus{},
			planOptions{hash: hashForTest})
		var status v1alpha1.ImportStateStatus
		p.report(&status, destination{namespace: "ksctl"})
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(status.Clusters) != maxClusters || len(data) > 1<<20 {
			t.Errorf("%q: %d rows in %d bytes", filling, len(status.Clusters), len(data))
		}
		if row := status.Clusters[0]; !utf8.ValidString(row.Key) ||
			strings.ContainsFunc(row.Key+row.Message, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q: got %+v", filling, row)
		}
	}
}
