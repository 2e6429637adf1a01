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

// releaseRecord returns a release record as Helm writes it.
func releaseRecord(t testing.TB, release any) *unstructured.Unstructured {
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
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "sh.helm.release.v1.web.v1", "namespace": "ns"},
		"data": map[string]any{"release": text}}}
}

func TestParseRecord(t *testing.T) {
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
	refs, err := parseRecord(releaseRecord(t, map[string]any{"name": "web", "manifest": manifest}))
	if err != nil {
		t.Fatal(err)
	}
	want := []versionedRef{{stacks.Ref{Kind: "ConfigMap", Name: "a"}, "v1"},
		{stacks.Ref{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "a:b"}, "v1"}}
	if !slices.Equal(refs, want) {
		t.Errorf("%+v, want %+v", refs, want)
	}
	for name, text := range map[string]any{"not base64": "?", "encoded once": "e30=", "empty": nil,
		"not compressed": "ZTMwPQ=="} {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r",
			"namespace": "ns"}, "data": map[string]any{"release": text}}}
		if refs, err := parseRecord(u); err == nil {
			t.Errorf("%s: %v", name, refs)
		}
	}
	if _, err := parseRecord(releaseRecord(t, map[string]any{"manifest": "a: [\n"})); err == nil {
		t.Error("no error for an invalid manifest")
	}
}

// FuzzParseRecord checks that any record is parsed or rejected.
func FuzzParseRecord(f *testing.F) {
	f.Add("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		refs, err := parseRecord(releaseRecord(t, map[string]any{"manifest": manifest}))
		for _, r := range refs {
			if err != nil || r.Name == "" || r.Kind == "" {
				t.Errorf("%+v of %v", r, err)
			}
		}
	})
}

func TestFingerprint(t *testing.T) {
	spec := appsv1.KsctlRemoveSpec{Stack: "app", SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}}
	hash := func(change func(*appsv1.KsctlRemoveSpec)) string {
		s := *spec.DeepCopy()
		change(&s)
		out, err := fingerprint(&s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	unchanged := hash(func(*appsv1.KsctlRemoveSpec) {})
	for name, change := range map[string]func(*appsv1.KsctlRemoveSpec){
		"approval":   func(s *appsv1.KsctlRemoveSpec) { s.ApprovedDigest = "x" },
		"schedule":   func(s *appsv1.KsctlRemoveSpec) { s.Suspend = true },
		"unset keep": func(s *appsv1.KsctlRemoveSpec) { s.Keep = nil },
	} {
		if hash(change) != unchanged {
			t.Errorf("%s changes the fingerprint", name)
		}
	}
	for name, change := range map[string]func(*appsv1.KsctlRemoveSpec){
		"stack":           func(s *appsv1.KsctlRemoveSpec) { s.Stack = "other" },
		"components":      func(s *appsv1.KsctlRemoveSpec) { s.Components = []string{"a"} },
		"empty keep":      func(s *appsv1.KsctlRemoveSpec) { s.Keep = []appsv1.KeepRule{} },
		"customResources": func(s *appsv1.KsctlRemoveSpec) { s.CustomResources = appsv1.CustomResourcesDelete },
	} {
		if hash(change) == unchanged {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
}

func TestKeepReason(t *testing.T) {
	pvc := stacks.Ref{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data"}
	cm := stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	for name, c := range map[string]struct {
		keep []appsv1.KeepRule
		ref  stacks.Ref
		kept bool
	}{
		"claim, keep unset":  {nil, pvc, true},
		"other, keep unset":  {nil, cm, false},
		"empty keep":         {[]appsv1.KeepRule{}, pvc, false},
		"kind":               {[]appsv1.KeepRule{{Kind: "ConfigMap"}}, cm, true},
		"other name":         {[]appsv1.KeepRule{{Kind: "ConfigMap", Name: "b"}}, cm, false},
		"namespace and name": {[]appsv1.KeepRule{{Kind: "ConfigMap", Namespace: "ns", Name: "a"}}, cm, true},
		"other group":        {[]appsv1.KeepRule{{Kind: "ConfigMap", Group: ptr.To("x.io")}}, cm, false},
		"core group":         {[]appsv1.KeepRule{{Kind: "ConfigMap", Group: ptr.To("")}}, cm, true},
		"claim, other kind":  {[]appsv1.KeepRule{{Kind: "ConfigMap"}}, pvc, false},
	} {
		if got := keepReason(&appsv1.KsctlRemoveSpec{Keep: c.keep}, c.ref) != ""; got != c.kept {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestFirstObjects(t *testing.T) {
	var all []appsv1.RemovalObject
	for i := range 3 * maxListed {
		all = append(all, appsv1.RemovalObject{ID: string(rune('z'-i%20)) + strings.Repeat("x", i),
			Message: strings.Repeat("é", maxMessageBytes)})
	}
	out := firstObjects(all)
	if len(out) != maxListed || !slices.IsSortedFunc(out, func(a, b appsv1.RemovalObject) int {
		return strings.Compare(a.ID, b.ID)
	}) {
		t.Errorf("%d objects, or not sorted", len(out))
	}
	if m := out[0].Message; len(m) > maxMessageBytes+len("…") || !strings.HasSuffix(m, "é…") {
		t.Errorf("a message of %d bytes", len(m))
	}
	if firstObjects(nil) != nil {
		t.Error("no objects are not nil")
	}
}
