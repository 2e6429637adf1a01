package v1

import "testing"

func TestKeeps(t *testing.T) {
	core := ""
	claim := [4]string{"", "PersistentVolumeClaim", "ns", "data"}
	for name, tc := range map[string]struct {
		keep   []KeepRule
		object [4]string
		want   bool
	}{
		"by default a claim":       {nil, claim, true},
		"and nothing else":         {nil, [4]string{"", "ConfigMap", "ns", "data"}, false},
		"nor one of another group": {nil, [4]string{"example.com", "PersistentVolumeClaim", "ns", "data"}, false},
		"nothing":                  {[]KeepRule{}, claim, false},
		"another kind":             {[]KeepRule{{Kind: "Secret"}}, claim, false},
		"the kind":                 {[]KeepRule{{Kind: "Secret"}, {Kind: "PersistentVolumeClaim"}}, claim, true},
		"the name":                 {[]KeepRule{{Group: &core, Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data"}}, claim, true},
		"another name":             {[]KeepRule{{Kind: "PersistentVolumeClaim", Name: "x"}}, claim, false},
		"another namespace":        {[]KeepRule{{Kind: "PersistentVolumeClaim", Namespace: "x"}}, claim, false},
		"another group":            {[]KeepRule{{Group: &core, Kind: "PersistentVolumeClaim"}}, [4]string{"example.com", "PersistentVolumeClaim", "ns", "data"}, false},
	} {
		spec := KsctlRemoveSpec{Keep: tc.keep}
		if got := spec.Keeps(tc.object[0], tc.object[1], tc.object[2], tc.object[3]); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
