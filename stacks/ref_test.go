package stacks

import "testing"

func TestIDRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		ref Ref
		id  string
	}{
		{Ref{Kind: "ConfigMap", Namespace: "a", Name: "b"}, "a_b__ConfigMap"},
		{Ref{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "b.c"}, "a_b.c_apps_Deployment"},
		{Ref{Kind: "Namespace", Name: "b"}, "_b__Namespace"},
		{Ref{Group: rbacGroup, Kind: "ClusterRole", Name: "system:x"},
			"_system__x_rbac.authorization.k8s.io_ClusterRole"},
		{Ref{Group: "g.io", Kind: "Odd", Namespace: "n", Name: "under_score"}, "n_under_score_g.io_Odd"},
	} {
		if got := tc.ref.ID(); got != tc.id {
			t.Errorf("ID() = %q, want %q", got, tc.id)
		}
		got, err := ParseID(tc.id)
		if err != nil || got != tc.ref {
			t.Errorf("ParseID(%q) = %+v, %v; want %+v", tc.id, got, err, tc.ref)
		}
	}
}

func TestParseIDRejectsInvalidIDs(t *testing.T) {
	for _, id := range []string{"", "a", "a_b", "a_b_c", "___", "a___K", "a_b__"} {
		if r, err := ParseID(id); err == nil {
			t.Errorf("ParseID(%q) = %+v, want an error", id, r)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("a_b__ConfigMap")
	f.Add("_system__x_rbac.authorization.k8s.io_ClusterRole")
	f.Fuzz(func(t *testing.T, id string) {
		r, err := ParseID(id)
		if err != nil {
			return
		}
		again, err := ParseID(r.ID())
		if err != nil || again.ID() != r.ID() {
			t.Errorf("%q parses to %+v, whose id %q parses to %+v (%v)", id, r, r.ID(), again, err)
		}
	})
}
