package install_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	k8sappsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mutate registers a mutating webhook for creates and updates of a resource in a namespace.
// The webhook answers with the JSON patch that the function returns for the object. requests
// counts its calls. probe is a manifest of such an object; mutate creates it with dry-run until
// the webhook is called.
func mutate(ctx context.Context, ns, group, resource, probe string, patch func(calls int64,
	object []byte) []map[string]any) (requests *atomic.Int64, stop func()) {
	GinkgoHelper()
	calls := &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		changes, err := json.Marshal(patch(calls.Add(1), review.Request.Object.Raw))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: changes,
			PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	DeferCleanup(server.Close)
	config := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + resource},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.example.com", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(30)),
			SideEffects:   ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create,
					admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"},
					Resources: []string{resource}}}},
		}},
	}
	Expect(plane.Client().Create(ctx, config)).To(Succeed())
	remove := func(ctx context.Context) {
		Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, config))).To(Succeed())
	}
	stop = func() { remove(ctx) }
	DeferCleanup(func(ctx SpecContext) { remove(ctx) })
	Eventually(ctx, func() int64 { // the API server calls it with a delay
		kubectl(ctx, ns, probe, "create", "--dry-run=server", "-f", "-")
		return calls.Load()
	}, soon, "20ms").Should(BeNumerically(">", 0), "the webhook is called")
	return calls, stop
}

func jsonPatchOp(kind, path string, value any) map[string]any {
	return map[string]any{"op": kind, "path": path, "value": value}
}

var _ = Describe("A webhook that changes applied fields", func() {
	It("causes no corrections, although it sets a new value at each write and adds fields", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		calls, stop := mutate(ctx, ns, "", "configmaps", configMap("probe", "1"),
			func(n int64, _ []byte) []map[string]any {
				return []map[string]any{jsonPatchOp("add", "/data/value", fmt.Sprintf("webhook %d", n)),
					jsonPatchOp("add", "/data/added", "by the webhook"),
					jsonPatchOp("add", "/metadata/finalizers", []string{"example.com/webhook"})}
			})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		Expect(getConfigMap(ctx, ns, "a").Data["value"]).To(HavePrefix("webhook"), "the webhook was called")
		expectNoWrites(ctx, ns, mark, "drift is relative to the result of the apply")
		requestReconcile(ctx, in, "again")
		expectNoWrites(ctx, ns, mark, "drift is relative to the result of the apply")
		Expect(ready(in).Status).To(BeEquivalentTo("True"))

		By("a write by another client, which the webhook changes as well")
		mark = auditMark(ctx)
		before := calls.Load()
		Expect(mergePatch(`{"metadata":{"labels":{"team":"theirs"}}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Consistently(ctx, func() int {
			return len(writes(ctx, ns, mark))
		}, quiet, "500ms").Should(BeNumerically("<=", 1), "at most one correction")
		Expect(calls.Load() - before).To(BeNumerically("<=", 2))

		By("a change in Git")
		mark = auditMark(ctx)
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
		Consistently(ctx, func() int {
			return len(writes(ctx, ns, mark))
		}, quiet, "500ms").Should(Equal(1), "exactly one apply")
		becomes(ctx, in, "True", "")
		stop()
		Expect(mergePatch(`{"metadata":{"finalizers":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
	})

	It("causes no corrections of a Deployment when it injects a container and pins the image", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		mutate(ctx, ns, "apps", "deployments", deployment("probe", ""), func(_ int64, object []byte) []map[string]any {
			d := &k8sappsv1.Deployment{}
			if err := json.Unmarshal(object, d); err != nil {
				return nil
			}
			out := []map[string]any{jsonPatchOp("replace", "/spec/template/spec/containers/0/image",
				d.Spec.Template.Spec.Containers[0].Image+"@pinned"),
				jsonPatchOp("add", "/spec/replicas", 2)}
			for _, c := range d.Spec.Template.Spec.Containers {
				if c.Name == "injected" {
					return out
				}
			}
			return append(out,
				jsonPatchOp("add", "/spec/template/spec/containers/-",
					map[string]any{"name": "injected", "image": "example.com/injected:1"}))
		})
		stack(ctx, ns, "main@sha1:1", deployment("web", ""))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		Expect(images(ctx, ns)).To(ContainSubstring("@pinned"), "the webhook was called")
		expectNoWrites(ctx, ns, mark, "drift is relative to the result of the apply")
		becomes(ctx, in, "True", "")
		awaitReplicas(ctx, ns, 2)
	})
})
