package bysource

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// record is a Secret as Helm writes it.
func record(t testing.TB, release any) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(release)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(zipped.Bytes())))
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "sh.helm.release.v1.web.v1", "namespace": "ns"},
		"data": map[string]any{"release": text}}}
}

func TestRecorded(t *testing.T) {
	const manifest = `---
# Source: web/templates/a.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "a:b"}
---
# nothing
`
	refs, err := recorded(record(t, map[string]any{"name": "web", "manifest": manifest}))
	if err != nil {
		t.Fatal(err)
	}
	want := []versionedRef{{stacks.Ref{Kind: "ConfigMap", Name: "a"}, "v1"}, {stacks.Ref{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "a:b"}, "v1"}}
	if !slices.Equal(refs, want) {
		t.Errorf("%+v, want %+v", refs, want)
	}
	for name, text := range map[string]any{"no base64": "?", "once": "e30=", "nothing": nil, "not zipped": "ZTMwPQ=="} {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r", "namespace": "ns"}, "data": map[string]any{"release": text}}}
		if _, err := recorded(u); err == nil || !strings.Contains(err.Error(), "ns/r can't be read") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := recorded(record(t, map[string]any{"manifest": "a: [\n"})); err == nil {
		t.Error("no error of a broken manifest")
	}
}

// FuzzRecorded: whatever a record holds, it is read or refused.
func FuzzRecorded(f *testing.F) {
	f.Add("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		refs, err := recorded(record(t, map[string]any{"manifest": manifest}))
		for _, r := range refs {
			if err != nil || r.Name == "" || r.Kind == "" {
				t.Errorf("%+v of %v", r, err)
			}
		}
	})
}

func TestFingerprint(t *testing.T) {
	spec := appsv1.KsctlRemoveSpec{Stack: "app", SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}}
	of := func(change func(*appsv1.KsctlRemoveSpec)) string {
		s := *spec.DeepCopy()
		change(&s)
		out, err := fingerprint(&s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	as := of(func(*appsv1.KsctlRemoveSpec) {})
	for name, change := range map[string]func(*appsv1.KsctlRemoveSpec){
		"its approval":   func(s *appsv1.KsctlRemoveSpec) { s.ApprovedDigest = "x" },
		"when to look":   func(s *appsv1.KsctlRemoveSpec) { s.Suspend = true },
		"keep as it was": func(s *appsv1.KsctlRemoveSpec) { s.Keep = nil },
	} {
		if of(change) != as {
			t.Errorf("%s changes the fingerprint", name)
		}
	}
	for name, change := range map[string]func(*appsv1.KsctlRemoveSpec){
		"the stack":       func(s *appsv1.KsctlRemoveSpec) { s.Stack = "other" },
		"the components":  func(s *appsv1.KsctlRemoveSpec) { s.Components = []string{"a"} },
		"nothing is kept": func(s *appsv1.KsctlRemoveSpec) { s.Keep = []appsv1.KeepRule{} },
		"definitions":     func(s *appsv1.KsctlRemoveSpec) { s.CustomResources = appsv1.CustomResourcesDelete },
	} {
		if of(change) == as {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
}

func TestKeptBy(t *testing.T) {
	pvc := stacks.Ref{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data"}
	cm := stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	for name, c := range map[string]struct {
		keep []appsv1.KeepRule
		ref  stacks.Ref
		kept bool
	}{
		"claims unless said":   {nil, pvc, true},
		"others unless said":   {nil, cm, false},
		"nothing":              {[]appsv1.KeepRule{}, pvc, false},
		"a kind":               {[]appsv1.KeepRule{{Kind: "ConfigMap"}}, cm, true},
		"a name":               {[]appsv1.KeepRule{{Kind: "ConfigMap", Name: "b"}}, cm, false},
		"a namespace":          {[]appsv1.KeepRule{{Kind: "ConfigMap", Namespace: "ns", Name: "a"}}, cm, true},
		"another group":        {[]appsv1.KeepRule{{Kind: "ConfigMap", Group: ptr.To("x.io")}}, cm, false},
		"the core group":       {[]appsv1.KeepRule{{Kind: "ConfigMap", Group: ptr.To("")}}, cm, true},
		"claims are not named": {[]appsv1.KeepRule{{Kind: "ConfigMap"}}, pvc, false},
	} {
		if got := keptBy(&appsv1.KsctlRemoveSpec{Keep: c.keep}, c.ref) != ""; got != c.kept {
			t.Errorf("%s: kept is %v", name, got)
		}
	}
}

func TestShown(t *testing.T) {
	var all []appsv1.RemovalObject
	for i := range 3 * maxShown {
		all = append(all, appsv1.RemovalObject{ID: string(rune('z'-i%20)) + strings.Repeat("x", i), Message: strings.Repeat("é", maxMessage)})
	}
	out := shown(all)
	if len(out) != maxShown || !slices.IsSortedFunc(out, func(a, b appsv1.RemovalObject) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("%d are shown", len(out))
	}
	if m := out[0].Message; len(m) > maxMessage+len("…") || !strings.HasSuffix(m, "é…") {
		t.Errorf("a message of %d bytes", len(m))
	}
	if shown(nil) != nil {
		t.Error("nothing is not nothing")
	}
}
