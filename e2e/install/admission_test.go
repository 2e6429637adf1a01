package install_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// validatingWebhook registers a webhook that validates the creation of ConfigMaps "b" in a
// namespace, with failurePolicy Fail. The returned function deletes its configuration.
func validatingWebhook(ctx context.Context, ns, url string, ca []byte) (stop func()) {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-guard"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guard.example.com", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(5)),
			SideEffects:       ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:     ptr.To(admissionregistrationv1.Fail),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			MatchConditions:   []admissionregistrationv1.MatchCondition{{Name: "b", Expression: "request.name == 'b'"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{
				admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}}}},
		}},
	}
	Expect(plane.Client().Create(ctx, config)).To(Succeed())
	remove := func(ctx context.Context) {
		Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, config))).To(Succeed())
	}
	DeferCleanup(func(ctx SpecContext) { remove(ctx) })
	probe := aConfigMap(ns, "b")
	Eventually(ctx, func() error {
		return plane.Client().Create(ctx, probe.DeepCopy(), client.DryRunAll)
	}, soon, "20ms").
		Should(HaveOccurred(), "the API server calls the webhook")
	return func() { remove(ctx) }
}

// expectOnlyBMissing checks that of the ConfigMaps a, b and c only b does not exist.
func expectOnlyBMissing(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, name := range []string{"a", "c"} {
		Expect(absent(ctx, aConfigMap(ns, name))).To(BeFalse(), "%s is not affected", name)
	}
	Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeTrue())
}

var _ = Describe("A webhook that denies objects", func() {
	It("blocks only the denied object, until it admits the object", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		reason := "not on my watch " + strings.Repeat("because ", 1<<17) // a megabyte
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID,
				Result: &metav1.Status{Message: reason}}
			review.Request = nil
			_ = json.NewEncoder(w).Encode(review)
		}))
		DeferCleanup(server.Close)
		stop := validatingWebhook(ctx, ns, server.URL,
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"), configMap("c", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/b", "guard.example.com", "not on my watch")
		Expect(len(ready(in).Message)).To(BeNumerically("<", 32<<10), "the status stays below the size limit")
		expectOnlyBMissing(ctx, ns)
		stop()
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
	})

	It("is reported when it is unavailable", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stop := validatingWebhook(ctx, ns, "https://127.0.0.1:1/none", nil) // no program listens on port 1
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), configMap("b", "1"), configMap("c", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", "ConfigMap "+ns+"/b", "guard.example.com", "refused")
		expectOnlyBMissing(ctx, ns)
		stop()
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
	})
})

var _ = Describe("An object that a policy of the cluster rejects", func() {
	It("is retried until the quota has room", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		quota := &corev1.ResourceQuota{ObjectMeta: objectMeta(ns, "few"),
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}}}
		Expect(plane.Client().Create(ctx, quota)).To(Succeed())
		probe := &corev1.Secret{ObjectMeta: objectMeta(ns, "probe")}
		Eventually(ctx, func() error {
			return plane.Client().Create(ctx, probe.DeepCopy(), client.DryRunAll)
		}, soon, "20ms").
			Should(MatchError(ContainSubstring("exceeded quota")),
				"the quota is enforced, which is later than its status shows")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), secret("s", "1"), secret("t", "1"), configMap("z", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", "exceeded quota: few")
		for _, name := range []string{"a", "z"} {
			Expect(absent(ctx, aConfigMap(ns, name))).To(BeFalse(), "%s is not affected", name)
		}
		more := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hard":{"count/secrets":"2"}}}`))
		Expect(plane.Client().Patch(ctx, quota, more)).To(Succeed())
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
	})

	It("is retried until the Pod Security level of the namespace permits it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		enforce := func(level string) {
			GinkgoHelper()
			patch := client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%q}}}`, level))
			Expect(plane.Client().Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch)).
				To(Succeed())
		}
		enforce("baseline")
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostNetwork: true, containers: [{name: main, " +
			"image: 'example.com/main:1'}]}\n"
		probe := &corev1.Pod{ObjectMeta: objectMeta(ns, "probe"),
			Spec: corev1.PodSpec{HostNetwork: true,
				Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}}}
		Eventually(ctx, func() error {
			return plane.Client().Create(ctx, probe.DeepCopy(), client.DryRunAll)
		}, soon, "50ms").
			Should(MatchError(ContainSubstring("PodSecurity")), "the level is enforced")
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), pod, configMap("c", "1"))
		in := newInstall(ctx, ns, "i", retryEvery(2*time.Second))
		reports(ctx, in, "False", "ReconciliationFailed", "Pod "+ns+"/p", "violates PodSecurity", "hostNetwork")
		for _, name := range []string{"a", "c"} {
			Expect(absent(ctx, aConfigMap(ns, name))).To(BeFalse(), "%s is not affected", name)
		}
		enforce("privileged")
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
	})
})
