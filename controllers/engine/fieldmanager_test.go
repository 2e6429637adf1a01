package engine

import (
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
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{" + strings.Join(of, ",") + "}")}
}

func status(manager string, of ...string) metav1.ManagedFieldsEntry {
	e := fields(manager, "Update", "v1", of...)
	e.Subresource = "status"
	return e
}

func TestTakeFields(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		ignore  []string
		want    []string // manager operation version fields
	}{
		"of nobody": {},
		"of somebody who leaves no mark": {entries: []metav1.ManagedFieldsEntry{
			fields("cainjector", "Apply", "v1", `"f:webhooks":{}`), fields("kubectl", "Update", "v1", `"f:data":{}`), fields("manager", "Update", "v1", `"f:data":{}`)}},
		"ours already": {entries: []metav1.ManagedFieldsEntry{fields("ksctl-gitops", "Apply", "v1", kustomized)}},
		"of kustomize-controller": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1", `"f:data":{"f:a":{}}`, kustomized),
				fields("kubectl-edit", "Update", "v1", `"f:data":{"f:b":{}}`)},
			want: []string{`kubectl-edit Update v1 {"f:data":{"f:b":{}}}`, `ksctl-gitops Apply v1 {"f:data":{"f:a":{}},` + kustomized + `}`}},
		"of a controller with another name, in two entries": {
			entries: []metav1.ManagedFieldsEntry{fields("flux", "Apply", "v1", `"f:data":{"f:a":{}}`, kustomized),
				fields("flux", "Update", "v1", `"f:data":{"f:b":{}}`)},
			want: []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{},"f:b":{}},` + kustomized + `}`}},
		"in addition to what is ours": {
			entries: []metav1.ManagedFieldsEntry{fields("ksctl-gitops", "Apply", "v1", `"f:data":{"f:a":{}}`), fields("argocd-controller", "Update", "v1", argoTracked)},
			want:    []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{}},` + argoTracked + `}`}},
		"of Argo CD without a mark of its own": {
			entries: []metav1.ManagedFieldsEntry{fields("argocd-controller", "Update", "v1", `"f:data":{"f:a":{}}`)},
			want:    []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{}}}`}},
		"of kubectl apply": {
			entries: []metav1.ManagedFieldsEntry{
				fields("kubectl-client-side-apply", "Update", "v1", `"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}`),
				fields("kubectl", "Apply", "v1", `"f:data":{"f:a":{}}`)},
			want: []string{`ksctl-gitops Apply v1 {"f:data":{"f:a":{}},"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}`}},
		"never the status": {
			entries: []metav1.ManagedFieldsEntry{fields("helm-controller", "Apply", "v1", `"f:metadata":{"f:labels":{"f:helm.toolkit.fluxcd.io/name":{}}}`),
				status("helm-controller", `"f:status":{"f:phase":{}}`), status("kube-controller-manager", `"f:status":{"f:replicas":{}}`)},
			want: []string{`helm-controller Update v1 {"f:status":{"f:phase":{}}}`, `kube-controller-manager Update v1 {"f:status":{"f:replicas":{}}}`,
				`ksctl-gitops Apply v1 {"f:metadata":{"f:labels":{"f:helm.toolkit.fluxcd.io/name":{}}}}`}},
		"not what is ignored": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1", kustomized, oneContainer)},
			ignore:  []string{"/spec/replicas", "/spec/template/spec/containers/0/image"},
			want: []string{`kustomize-controller Apply v1 {"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:image":{}}}}}}}`,
				`ksctl-gitops Apply v1 {` + kustomized + `,"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:name":{}}}}}}}`}},
		"of another version only the metadata": {
			entries: []metav1.ManagedFieldsEntry{fields("kustomize-controller", "Apply", "v1beta1", kustomized, `"f:spec":{"f:old":{}}`)},
			want:    []string{`kustomize-controller Apply v1beta1 {"f:spec":{"f:old":{}}}`, `ksctl-gitops Apply v1 {` + kustomized + `}`}},
	} {
		t.Run(name, func(t *testing.T) {
			out, taken, err := takeFields(tc.entries, "v1", tc.ignore)
			if err != nil || taken != (len(tc.want) > 0) {
				t.Fatalf("taken %v, %v", taken, err)
			}
			var got []string
			for _, e := range out {
				got = append(got, strings.Join([]string{e.Manager, string(e.Operation), e.APIVersion, string(e.FieldsV1.GetRawBytes())}, " "))
			}
			if taken && strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestTakeFieldsThatCantBeRead(t *testing.T) {
	if _, _, err := takeFields([]metav1.ManagedFieldsEntry{fields("x", "Apply", "v1", "broken")}, "v1", nil); err == nil {
		t.Error("no error")
	}
}

// By default Argo CD's label is one that charts set as well: who set it decides.
func TestClaimOfWhatArgoCDLabelled(t *testing.T) {
	u := existing(labelled("app.kubernetes.io/instance", "shop"))
	label := `"f:metadata":{"f:labels":{"f:app.kubernetes.io/instance":{}}}`
	u.SetManagedFields([]metav1.ManagedFieldsEntry{fields("helm", "Apply", "v1", label)})
	if by := Manager(u); by != "" {
		t.Errorf("of a chart: %s", by)
	}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{fields("argocd-controller", "Update", "v1", label)})
	_, err := claim(me, ref("a"), &appsv1.InventoryEntry{}, appsv1.AdoptUnowned, u)
	refusedBy(t, err, "Argo CD application shop", "spec.adopt")
}
