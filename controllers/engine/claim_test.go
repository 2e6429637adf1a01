package engine

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
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

func labelled(kv ...string) objectMeta {
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

// managers are objects that say whose they are, and the name for that.
var managers = map[string]struct {
	object objectMeta
	by     string
}{
	"a controller":       {objectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: ptr.To(true)}}}, "Deployment web"},
	"Flux Kustomization": {labelled("kustomize.toolkit.fluxcd.io/name", "apps", "kustomize.toolkit.fluxcd.io/namespace", "flux-system"), "Flux Kustomization flux-system/apps"},
	"Flux HelmRelease": {objectMeta{Labels: labelled("helm.toolkit.fluxcd.io/name", "podinfo", "helm.toolkit.fluxcd.io/namespace", "apps").Labels,
		Annotations: annotated("meta.helm.sh/release-name", "podinfo", "meta.helm.sh/release-namespace", "apps").Annotations}, "Flux HelmRelease apps/podinfo"},
	"Argo CD by annotation": {annotated("argocd.argoproj.io/tracking-id", "shop:/ConfigMap:ns/a"), "Argo CD (shop:/ConfigMap:ns/a)"},
	"Argo CD by label":      {labelled("argocd.argoproj.io/instance", "shop"), "Argo CD application shop"},
	"Helm":                  {annotated("meta.helm.sh/release-name", "web", "meta.helm.sh/release-namespace", "prod"), "Helm release prod/web"},
}

// unowned are objects that look as if they were somebody's and are not.
var unowned = map[string]objectMeta{
	"nothing said":                 {},
	"what charts say of their own": labelled("app.kubernetes.io/instance", "x", "app.kubernetes.io/managed-by", "Helm", "app.kubernetes.io/name", "x"),
	"an owner that is no controller": {OwnerReferences: []metav1.OwnerReference{
		{Kind: "Namespace", Name: "x"}, {Kind: "Namespace", Name: "y", Controller: ptr.To(false)}}},
	"our label alone":          labelled(live.OwnerLabel, me.Installation),
	"the mark of another copy": annotated(live.MarkAnnotation, live.Mark{Owner: other.String(), ID: ref("b").ID()}.String()),
	"our mark on a copy":       annotated(live.MarkAnnotation, live.Mark{Owner: me.String(), ID: ref("b").ID()}.String()),
	"a mark that is none":      annotated(live.MarkAnnotation, "|"),
	"half a mark":              annotated(live.MarkAnnotation, me.String()),
	"adopted by nobody":        annotated(live.AdoptedAnnotation, "true"),
}

func TestClaimOfWhatOthersManage(t *testing.T) {
	for name, m := range managers {
		for adopt, refused := range map[appsv1.AdoptMode]bool{appsv1.AdoptNever: true, appsv1.AdoptUnowned: true, "": true, appsv1.AdoptAlways: false} {
			t.Run(name+"/"+string(adopt), func(t *testing.T) {
				state, err := claim(me, ref("a"), &appsv1.InventoryEntry{}, adopt, existing(m.object))
				if !refused {
					if err != nil || state != appsv1.EntryApplied {
						t.Errorf("got %s, %v; Always takes it for good", state, err)
					}
					return
				}
				refusedBy(t, err, m.by, "spec.adopt")
			})
		}
	}
}

func TestClaimOfWhatNobodyManages(t *testing.T) {
	for name, m := range unowned {
		t.Run(name, func(t *testing.T) {
			none := &appsv1.InventoryEntry{State: appsv1.EntryIntended}
			for adopt, want := range map[appsv1.AdoptMode]appsv1.EntryState{
				appsv1.AdoptUnowned: appsv1.EntryAdopted, "": appsv1.EntryAdopted, appsv1.AdoptAlways: appsv1.EntryApplied} {
				if state, err := claim(me, ref("a"), none, adopt, existing(m)); err != nil || state != want {
					t.Errorf("adopt %q: got %q, %v, want %q", adopt, state, err, want)
				}
			}
			_, err := claim(me, ref("a"), none, appsv1.AdoptNever, existing(m))
			refusedBy(t, err, "nobody", "spec.adopt")
		})
	}
}

func TestClaimByMark(t *testing.T) {
	mark := func(owner OwnerKey, more ...string) objectMeta {
		return annotated(append([]string{live.MarkAnnotation, live.Mark{Owner: owner.String(), ID: ref("a").ID()}.String()}, more...)...)
	}
	rebuilt := me
	rebuilt.Installation = "another-installation"
	for name, tc := range map[string]struct {
		object objectMeta
		want   appsv1.EntryState
		by     string
	}{
		"ours":                       {mark(me), appsv1.EntryApplied, ""},
		"ours, adopted":              {mark(me, live.AdoptedAnnotation, "true"), appsv1.EntryAdopted, ""},
		"ours, and Helm's, too":      {mark(me, "meta.helm.sh/release-name", "x"), appsv1.EntryApplied, ""},
		"another install's":          {mark(other), "", "KsctlInstall ns/other"},
		"another installation's":     {mark(rebuilt), "", "KsctlInstall ns/me"},
		"of an owner without a form": {annotated(live.MarkAnnotation, "x y z|"+ref("a").ID()), "", `"x y z"`},
	} {
		// A mark is stronger than every choice: another install's is never taken.
		for _, adopt := range []appsv1.AdoptMode{appsv1.AdoptNever, appsv1.AdoptUnowned, appsv1.AdoptAlways} {
			// Nor does a uid that was recorded once help: it was handed over.
			for _, recorded := range []appsv1.InventoryEntry{{}, {UID: "uid", State: appsv1.EntryApplied}, {UID: "gone", State: appsv1.EntryApplied}} {
				t.Run(name+"/"+string(adopt), func(t *testing.T) {
					state, err := claim(me, ref("a"), &recorded, adopt, existing(tc.object))
					if tc.by != "" {
						refusedBy(t, err, tc.by, "one of the two")
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

// The uid in the inventory says that it is ours when somebody took the mark off.
func TestClaimByUID(t *testing.T) {
	for state, want := range map[appsv1.EntryState]appsv1.EntryState{
		appsv1.EntryApplied: appsv1.EntryApplied, appsv1.EntryDone: appsv1.EntryApplied,
		// What was there before us is released in the end, not deleted.
		appsv1.EntryAdopted: appsv1.EntryAdopted,
	} {
		for _, adopt := range []appsv1.AdoptMode{appsv1.AdoptNever, appsv1.AdoptUnowned, appsv1.AdoptAlways} {
			got, err := claim(me, ref("a"), &appsv1.InventoryEntry{UID: "uid", State: state}, adopt, existing(managers["Helm"].object))
			if err != nil || got != want {
				t.Errorf("%s under %s: got %q, %v", state, adopt, got, err)
			}
		}
	}
	// Another uid is another object, whatever its name.
	_, err := claim(me, ref("a"), &appsv1.InventoryEntry{UID: "before", State: appsv1.EntryApplied}, appsv1.AdoptNever, existing(objectMeta{}))
	refusedBy(t, err, "nobody", "spec.adopt")
	// And no uid is no match for an object without one.
	u := existing(objectMeta{})
	u.SetUID("")
	_, err = claim(me, ref("a"), &appsv1.InventoryEntry{State: appsv1.EntryApplied}, appsv1.AdoptNever, u)
	refusedBy(t, err, "nobody", "spec.adopt")
}

func refusedBy(t *testing.T, err error, by, hint string) {
	t.Helper()
	var owned *OwnedError
	if !errors.As(err, &owned) {
		t.Fatalf("got %v, want it to be refused", err)
	}
	for _, part := range []string{"ConfigMap ns/a", by, hint} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestOwnerKey(t *testing.T) {
	for _, k := range []OwnerKey{me, other, {Installation: "a.b-c", Cluster: "prod-eu", Kind: "Minimart", Namespace: "ns", Name: "a.b.c"}, {}} {
		got, ok := ParseOwnerKey(k.String())
		if !ok || got != k {
			t.Errorf("%q was read back as %+v, %t", k.String(), got, ok)
		}
	}
	for _, s := range []string{"", "x", "a/b/c/d", "a/b/c/d/e/f", "ns/name"} {
		if k, ok := ParseOwnerKey(s); ok {
			t.Errorf("%q was read as %+v", s, k)
		}
	}
	if got := me.People(); got != "KsctlInstall ns/me" {
		t.Error(got)
	}
}
