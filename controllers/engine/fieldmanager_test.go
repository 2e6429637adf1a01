package engine

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

const (
	kustomized   = `"f:metadata":{"f:labels":{"f:kustomize.toolkit.fluxcd.io/name":{}}}`
	argoTracked  = `"f:metadata":{"f:annotations":{"f:argocd.argoproj.io/tracking-id":{}}}`
	oneContainer = `"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:image":{},"f:name":{}}}}}}`
)

func fields(manager, operation, version string, of ...string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation),
		APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{" + strings.Join(of, ",") + "}")}
}

func status(manager string, of ...string) metav1.ManagedFieldsEntry {
	e := fields(manager, "Update", "v1", of...)
	e.Subresource = "status"
	return e
}

func TestMigrateManagedFields(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		ignore  []string
		want    []string // manager operation version fields
	}{
		"no entries": {},
		"managers without tracking metadata": {entries: []metav1.ManagedFieldsEntry{
			fields("cainjector", "Apply", "v1", `"f:webhooks":{}`), fields("kubectl", "Update", "v1", `"f:data":{}`),
			fields("manager", "Update", "v1", `"f:data":{}`)}},
		"only our entry": {entries: []metav1.ManagedFieldsEntry{fields("ksctl-gitops", "Apply", "v1", kustomized)}},
		"kustomize-controller": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1", `"f:data":{"f:a":{}}`,
				kustomized),
				fields("kubectl-edit", "Update", "v1", `"f:data":{"f:b":{}}`)},
			want: []string{`kubectl-edit Update v1 {"f:data":{"f:b":{}}}`,
				`ksctl-gitops Apply v1 {"f:data":{"f:a":{}},` + kustomized + `}`}},
		"kustomize-controller with another name and two entries": {
			entries: []metav1.ManagedFieldsEntry{fields("flux", "Apply", "v1", `"f:data":{"f:a":{}}`, kustomized),
				fields("flux", "Update", "v1", `"f:data":{"f:b":{}}`)},
			want: []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{},"f:b":{}},` + kustomized + `}`}},
		"in addition to our entry": {
			entries: []metav1.ManagedFieldsEntry{fields("ksctl-gitops", "Apply", "v1", `"f:data":{"f:a":{}}`),
				fields("argocd-controller", "Update", "v1", argoTracked)},
			want: []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{}},` + argoTracked + `}`}},
		"Argo CD without tracking metadata": {
			entries: []metav1.ManagedFieldsEntry{fields("argocd-controller", "Update", "v1", `"f:data":{"f:a":{}}`)},
			want:    []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{}}}`}},
		"Helm and helm-controller without tracking metadata, as of CRDs in crds/": {
			entries: []metav1.ManagedFieldsEntry{fields("helm", "Apply", "v1", `"f:data":{"f:a":{}}`),
				fields("helm-controller", "Update", "v1", `"f:data":{"f:b":{}}`)},
			want: []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{},"f:b":{}}}`}},
		"kubectl apply": {
			entries: []metav1.ManagedFieldsEntry{
				fields("kubectl-client-side-apply", "Update", "v1",
					`"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}`),
				fields("kubectl", "Apply", "v1", `"f:data":{"f:a":{}}`)},
			want: []string{
				`ksctl-gitops Apply v1 {"f:data":{"f:a":{}},"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}`}},
		"status is not migrated": {
			entries: []metav1.ManagedFieldsEntry{fields("helm-controller", "Apply", "v1",
				`"f:metadata":{"f:labels":{"f:helm.toolkit.fluxcd.io/name":{}}}`),
				status("helm-controller", `"f:status":{"f:phase":{}}`),
				status("kube-controller-manager", `"f:status":{"f:replicas":{}}`)},
			want: []string{`helm-controller Update v1 {"f:status":{"f:phase":{}}}`,
				`kube-controller-manager Update v1 {"f:status":{"f:replicas":{}}}`,
				`ksctl-gitops Apply v1 {"f:metadata":{"f:labels":{"f:helm.toolkit.fluxcd.io/name":{}}}}`}},
		"ignored paths are not migrated": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1", kustomized,
				oneContainer)},
			ignore: []string{"/spec/replicas", "/spec/template/spec/containers/0/image"},
			want: []string{
				`kustomize-controller Apply v1 {"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:image":{}}}}}}}`,
				`ksctl-gitops Apply v1 {` + kustomized +
					`,"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:name":{}}}}}}}`}},
		"ignored fields of list items are not migrated": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1", kustomized,
				`"f:list":{"k:{\"name\":\"a\"}":{"f:x":{}},"k:{\"name\":\"b\"}":{"f:x":{}}}`)},
			ignore: []string{`/list/k:{"name":"b"}/x`},
			want: []string{
				`kustomize-controller Apply v1 {"f:list":{"k:{\"name\":\"b\"}":{"f:x":{}}}}`,
				`ksctl-gitops Apply v1 {"f:list":{"k:{\"name\":\"a\"}":{"f:x":{}}},` + kustomized + `}`}},
		"only metadata of another version": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1beta1", kustomized,
				`"f:spec":{"f:old":{}}`)},
			want: []string{`kustomize-controller Apply v1beta1 {"f:spec":{"f:old":{}}}`, `ksctl-gitops Apply v1 {` +
				kustomized + `}`}},
	} {
		t.Run(name, func(t *testing.T) {
			out, taken, err := migrateManagedFields(tc.entries, "v1", tc.ignore)
			if err != nil || taken != (len(tc.want) > 0) {
				t.Fatalf("changed %v, %v", taken, err)
			}
			var got []string
			for _, e := range out {
				got = append(got,
					strings.Join([]string{e.Manager, string(e.Operation), e.APIVersion,
						string(e.FieldsV1.GetRawBytes())}, " "))
			}
			if taken && strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// An ignored path leads to fields of the object; replicas that were scaled are not ignored.
func TestIgnoredFields(t *testing.T) {
	u := existing(objectMeta{})
	u.Object["spec"] = map[string]any{"replicas": int64(0), "list": []any{map[string]any{"name": "a", "x": "1"}}}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{fields("helm", "Apply", "v1",
		`"f:spec":{"f:list":{"k:{\"name\":\"a\"}":{"f:x":{}}}}`)})
	got, err := ignoredFields(u, []string{"/spec/list/*/x", "/data/y"})
	if want := []string{`/spec/list/k:{"name":"a"}/x`, "/data/y"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestMigrateManagedFieldsRejectsInvalidEntries(t *testing.T) {
	if _, _, err := migrateManagedFields([]metav1.ManagedFieldsEntry{fields("x", "Apply", "v1", "broken")}, "v1",
		nil); err == nil {
		t.Error("no error")
	}
}

// Argo CD's default label is also set by charts: its field manager decides.
func TestClaimObjectLabeledByArgoCD(t *testing.T) {
	u := existing(labeled("app.kubernetes.io/instance", "shop"))
	label := `"f:metadata":{"f:labels":{"f:app.kubernetes.io/instance":{}}}`
	u.SetManagedFields([]metav1.ManagedFieldsEntry{fields("helm", "Apply", "v1", label)})
	if by := ManagerOf(u); by != "" {
		t.Errorf("the label of a chart counts as %s", by)
	}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{fields("argocd-controller", "Update", "v1", label)})
	_, err := claim(me, ref("a"), &appsv1.InventoryEntry{}, appsv1.AdoptUnowned, u)
	expectOwnedByOther(t, err, "Argo CD application shop", "spec.adopt")
}
