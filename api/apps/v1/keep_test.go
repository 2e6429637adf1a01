package v1

import "testing"

func TestRemoveSpecKeepsSelectedObjects(t *testing.T) {
	core := ""
	claim := [4]string{"", "PersistentVolumeClaim", "ns", "data"}
	for name, tc := range map[string]struct {
		keep   []KeepRule
		object [4]string
		want   bool
	}{
		"default: PersistentVolumeClaim": {nil, claim, true},
		"default: ConfigMap":             {nil, [4]string{"", "ConfigMap", "ns", "data"}, false},
		"default: PersistentVolumeClaim of another group": {nil,
			[4]string{"example.com", "PersistentVolumeClaim", "ns", "data"}, false},
		"empty list":          {[]KeepRule{}, claim, false},
		"kind does not match": {[]KeepRule{{Kind: "Secret"}}, claim, false},
		"kind matches":        {[]KeepRule{{Kind: "Secret"}, {Kind: "PersistentVolumeClaim"}}, claim, true},
		"all fields match": {[]KeepRule{{Group: &core, Kind: "PersistentVolumeClaim", Namespace: "ns",
			Name: "data"}}, claim, true},
		"name does not match":      {[]KeepRule{{Kind: "PersistentVolumeClaim", Name: "x"}}, claim, false},
		"namespace does not match": {[]KeepRule{{Kind: "PersistentVolumeClaim", Namespace: "x"}}, claim, false},
		"group does not match": {[]KeepRule{{Group: &core, Kind: "PersistentVolumeClaim"}},
			[4]string{"example.com", "PersistentVolumeClaim", "ns", "data"}, false},
	} {
		spec := KsctlRemoveSpec{Keep: tc.keep}
		if got := spec.Keeps(tc.object[0], tc.object[1], tc.object[2], tc.object[3]); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
