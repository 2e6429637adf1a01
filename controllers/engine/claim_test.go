package engine

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

type objectMeta = metav1.ObjectMeta

func annotated(kv ...string) objectMeta {
	m := objectMeta{Annotations: map[string]string{}}
	for i := 0; i < len(kv); i += 2 {
		m.Annotations[kv[i]] = kv[i+1]
	}
	return m
}

func labeled(kv ...string) objectMeta {
	return objectMeta{Labels: annotated(kv...).Annotations}
}

func existing(m objectMeta) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetNamespace("ns")
	u.SetName("a")
	u.SetUID("uid")
	u.SetLabels(m.Labels)
	u.SetAnnotations(m.Annotations)
	u.SetOwnerReferences(m.OwnerReferences)
	return u
}

// managedObjects are objects with metadata of a manager, and the display name of the manager.
var managedObjects = map[string]struct {
	object objectMeta
	by     string
}{
	"a controller": {
		objectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web",
			Controller: ptr.To(true)}}}, "Deployment web"},
	"Flux Kustomization": {labeled("kustomize.toolkit.fluxcd.io/name", "apps", "kustomize.toolkit.fluxcd.io/namespace",
		"flux-system"), "Flux Kustomization flux-system/apps"},
	"Flux HelmRelease": {objectMeta{Labels: labeled("helm.toolkit.fluxcd.io/name", "podinfo",
		"helm.toolkit.fluxcd.io/namespace", "apps").Labels,
		Annotations: annotated("meta.helm.sh/release-name", "podinfo", "meta.helm.sh/release-namespace",
			"apps").Annotations}, "Flux HelmRelease apps/podinfo"},
	"Argo CD by annotation": {annotated("argocd.argoproj.io/tracking-id", "shop:/ConfigMap:ns/a"),
		"Argo CD (shop:/ConfigMap:ns/a)"},
	"Argo CD by label": {labeled("argocd.argoproj.io/instance", "shop"), "Argo CD application shop"},
	"Helm": {annotated("meta.helm.sh/release-name", "web", "meta.helm.sh/release-namespace", "prod"),
		"Helm release prod/web"},
}

// unmanagedObjects are objects that have no manager, although some have similar metadata.
var unmanagedObjects = map[string]objectMeta{
	"no metadata": {},
	"common labels of charts": labeled("app.kubernetes.io/instance", "x", "app.kubernetes.io/managed-by", "Helm",
		"app.kubernetes.io/name", "x"),
	"owner references without a controller": {OwnerReferences: []metav1.OwnerReference{
		{Kind: "Namespace", Name: "x"}, {Kind: "Namespace", Name: "y", Controller: ptr.To(false)}}},
	"our label alone": labeled(live.OwnerLabel, me.Installation),
	"a copy of another install's object": annotated(live.MarkAnnotation,
		live.Mark{Owner: other.String(), ID: ref("b").ID()}.String()),
	"a copy of our object": annotated(live.MarkAnnotation,
		live.Mark{Owner: me.String(), ID: ref("b").ID()}.String()),
	"an empty mark":                annotated(live.MarkAnnotation, "|"),
	"a mark without an id":         annotated(live.MarkAnnotation, me.String()),
	"the adopted annotation alone": annotated(live.AdoptedAnnotation, "true"),
}

func TestClaimObjectsOfOtherManagers(t *testing.T) {
	for name, m := range managedObjects {
		for adopt, refused := range map[appsv1.AdoptMode]bool{appsv1.AdoptNever: true, appsv1.AdoptUnowned: true,
			"": true, appsv1.AdoptAlways: false} {
			t.Run(name+"/"+string(adopt), func(t *testing.T) {
				state, err := claim(me, ref("a"), &appsv1.InventoryEntry{}, adopt, existing(m.object))
				if !refused {
					if err != nil || state != appsv1.EntryApplied {
						t.Errorf("got %s, %v; with Always it is taken over permanently", state, err)
					}
					return
				}
				expectOwnedByOther(t, err, m.by, "spec.adopt")
			})
		}
	}
}

func TestClaimUnmanagedObjects(t *testing.T) {
	for name, m := range unmanagedObjects {
		t.Run(name, func(t *testing.T) {
			none := &appsv1.InventoryEntry{State: appsv1.EntryIntended}
			for adopt, want := range map[appsv1.AdoptMode]appsv1.EntryState{
				appsv1.AdoptUnowned: appsv1.EntryAdopted, "": appsv1.EntryAdopted,
				appsv1.AdoptAlways: appsv1.EntryApplied} {
				if state, err := claim(me, ref("a"), none, adopt, existing(m)); err != nil || state != want {
					t.Errorf("adopt %q: got %q, %v, want %q", adopt, state, err, want)
				}
			}
			_, err := claim(me, ref("a"), none, appsv1.AdoptNever, existing(m))
			expectOwnedByOther(t, err, "an unknown owner", "spec.adopt")
		})
	}
}

func TestClaimByMark(t *testing.T) {
	mark := func(owner plan.OwnerKey, more ...string) objectMeta {
		return annotated(append([]string{live.MarkAnnotation,
			live.Mark{Owner: owner.String(), ID: ref("a").ID()}.String()}, more...)...)
	}
	otherInstallation := me
	otherInstallation.Installation = "another-installation"
	for name, tc := range map[string]struct {
		object objectMeta
		want   appsv1.EntryState
		by     string
	}{
		"ours":                      {mark(me), appsv1.EntryApplied, ""},
		"ours, adopted":             {mark(me, live.AdoptedAnnotation, "true"), appsv1.EntryAdopted, ""},
		"ours, with a Helm release": {mark(me, "meta.helm.sh/release-name", "x"), appsv1.EntryApplied, ""},
		"another install's":         {mark(other), "", "KsctlInstall ns/other"},
		"another installation's":    {mark(otherInstallation), "", "KsctlInstall ns/me"},
		"of an invalid owner key":   {annotated(live.MarkAnnotation, "x y z|"+ref("a").ID()), "", `"x y z"`},
	} {
		// A mark takes precedence over spec.adopt: an object of another install is never claimed.
		for _, adopt := range []appsv1.AdoptMode{appsv1.AdoptNever, appsv1.AdoptUnowned, appsv1.AdoptAlways} {
			// Nor because of a recorded uid: the object was handed over.
			for _, recorded := range []appsv1.InventoryEntry{{}, {UID: "uid", State: appsv1.EntryApplied},
				{UID: "gone", State: appsv1.EntryApplied}} {
				t.Run(name+"/"+string(adopt), func(t *testing.T) {
					state, err := claim(me, ref("a"), &recorded, adopt, existing(tc.object))
					if tc.by != "" {
						expectOwnedByOther(t, err, tc.by, "one of the two")
						return
					}
					if err != nil || state != tc.want {
						t.Errorf("got %q, %v, want %q", state, err, tc.want)
					}
				})
			}
		}
	}
}

// An object that lost its mark is ours if the inventory has its uid.
func TestClaimByUID(t *testing.T) {
	for state, want := range map[appsv1.EntryState]appsv1.EntryState{
		appsv1.EntryApplied: appsv1.EntryApplied, appsv1.EntryDone: appsv1.EntryApplied,
		// An adopted object is released in the end, not deleted.
		appsv1.EntryAdopted: appsv1.EntryAdopted,
	} {
		for _, adopt := range []appsv1.AdoptMode{appsv1.AdoptNever, appsv1.AdoptUnowned, appsv1.AdoptAlways} {
			got, err := claim(me, ref("a"), &appsv1.InventoryEntry{UID: "uid", State: state}, adopt,
				existing(managedObjects["Helm"].object))
			if err != nil || got != want {
				t.Errorf("%s under %s: got %q, %v", state, adopt, got, err)
			}
		}
	}
	// An object with another uid is another object, even with the same name.
	_, err := claim(me, ref("a"), &appsv1.InventoryEntry{UID: "before", State: appsv1.EntryApplied}, appsv1.AdoptNever,
		existing(objectMeta{}))
	expectOwnedByOther(t, err, "an unknown owner", "spec.adopt")
	// An entry without a uid does not match an object without one.
	u := existing(objectMeta{})
	u.SetUID("")
	_, err = claim(me, ref("a"), &appsv1.InventoryEntry{State: appsv1.EntryApplied}, appsv1.AdoptNever, u)
	expectOwnedByOther(t, err, "an unknown owner", "spec.adopt")
}

func expectOwnedByOther(t *testing.T, err error, by, hint string) {
	t.Helper()
	var owned *plan.OwnedByOtherError
	if !errors.As(err, &owned) {
		t.Fatalf("got %v, want an OwnedByOtherError", err)
	}
	for _, part := range []string{"ConfigMap ns/a", by, hint} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestOwnerKey(t *testing.T) {
	for _, k := range []plan.OwnerKey{me, other,
		{Installation: "a.b-c", Cluster: "prod-eu", Kind: "Minimart", Namespace: "ns", Name: "a.b.c"}, {}} {
		got, ok := plan.ParseOwnerKey(k.String())
		if !ok || got != k {
			t.Errorf("%q is parsed as %+v, %t", k.String(), got, ok)
		}
	}
	for _, s := range []string{"", "x", "a/b/c/d", "a/b/c/d/e/f", "ns/name"} {
		if k, ok := plan.ParseOwnerKey(s); ok {
			t.Errorf("%q is parsed as %+v", s, k)
		}
	}
	if got := me.DisplayName(); got != "KsctlInstall ns/me" {
		t.Error(got)
	}
}
