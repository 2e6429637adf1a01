package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

const requestedAt = appsv1.RequestedAtAnnotation

// kind is an object with the status that all our kinds share.
type kind interface {
	client.Object
	CommonStatus() *appsv1.CommonStatus
}

func kinds() []kind { return []kind{repo, app, unapproved, extra, found, imported, exported, demo} }

// reworded replaces the messages of stored conditions that this version words differently.
var reworded = strings.NewReplacer(
	", and nothing is deleted yet: look at them, then commit spec.approvedDigest",
	"; nothing is deleted yet: review the objects, then set spec.approvedDigest",
	"https://127.0.0.1:1 does not answer as an API server", "probing API server https://127.0.0.1:1",
	"1 state in ksctl's store in namespace stored", "1 state in the ksctl store in namespace stored",
)

// request asks for a reconcile of every object, and waits for the answers.
func request(ctx context.Context, value string) {
	GinkgoHelper()
	for _, o := range kinds() {
		change(ctx, o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, requestedAt, value))
	}
	for _, o := range kinds() {
		Eventually(ctx, func() (string, error) {
			err := get(ctx, o)
			return o.CommonStatus().LastHandledReconcileAt, err
		}, soon).Should(Equal(value), "%T %s", o, o.GetName())
	}
}

var _ = Describe("A controller that starts over the objects of an earlier version", Ordered, func() {
	It("writes one answer to the request of each object, and nothing else", func(ctx SpecContext) {
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		controller := start()
		DeferCleanup(controller.Stop)
		request(ctx, "upgraded")

		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		user := cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount)
		writes := requests.Where(cluster.ByUser(user), cluster.Write).Without(review)
		isStatus := func(r cluster.Request) bool { return r.Subresource == "status" }
		others := writes.Without(isStatus)
		Expect(others).To(ConsistOf(And(HaveField("Resource", "secrets"),
			HaveField("Name", HavePrefix("ksctl-generated-")))),
			"from now on, the values that a chart generated are kept: %s", writes)
		answers := writes.Where(isStatus)
		Expect(answers).To(HaveLen(len(kinds())+1), "the Secret is recorded before it is created: %s", answers)
	})

	It("changes no object but the messages of conditions", func(ctx SpecContext) {
		before, after := files(), stored(ctx)
		for key, value := range before {
			Expect(after).To(HaveKey(key))
			value := reworded.Replace(withoutRequest(value))
			Expect(withoutAdditions(withoutRequest(after[key]), value)).To(MatchJSON(value), key)
			delete(after, key)
		}
		Expect(slices.Collect(maps.Keys(after))).To(ConsistOf(ContainSubstring("ksctl-generated-")))
	})

	It("deletes what is approved by the digest that the earlier version reported", func(ctx SpecContext) {
		controller := start()
		DeferCleanup(controller.Stop)
		_, digest, ok := strings.Cut(harness.ReadyCondition(unapproved).Message, appsv1.ApproveAnnotation+"=")
		Expect(ok).To(BeTrue(), harness.ReadyCondition(unapproved).Message)
		digest, _, _ = strings.Cut(digest, " ")
		change(ctx, unapproved, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.ApproveAnnotation, digest))
		becomes(ctx, unapproved, metav1.ConditionTrue, "ReconciliationSucceeded")
		change(ctx, found, fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, found.Status.Removal.Digest))
		becomes(ctx, found, metav1.ConditionTrue, "Removed")
		for _, name := range []string{"b", "c", "found"} {
			err := get(ctx, &corev1.ConfigMap{ObjectMeta: meta(name)})
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "ConfigMap %s: %v", name, err)
		}
	})
})

// nextReconcile is what this version adds to the message of Reconciling.
var nextReconcile = regexp.MustCompile(` \((checked on each change, and|retried) within about [0-9hms]+\)$`)

// withoutAdditions removes from the status of an object what this version records in addition: the
// account of every kind, the next reconcile, and the Secret with generated values.
func withoutAdditions(value, before string) string {
	GinkgoHelper()
	var object, was map[string]any
	Expect(json.Unmarshal([]byte(value), &object)).To(Succeed())
	Expect(json.Unmarshal([]byte(before), &was)).To(Succeed())
	if _, recorded, _ := unstructured.NestedMap(was, "status", "serviceAccount"); !recorded {
		unstructured.RemoveNestedField(object, "status", "serviceAccount")
	}
	if conditions, found, _ := unstructured.NestedSlice(object, "status", "conditions"); found {
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == appsv1.ReconcilingCondition {
				c["message"] = nextReconcile.ReplaceAllString(c["message"].(string), "")
			}
		}
		Expect(unstructured.SetNestedSlice(object, conditions, "status", "conditions")).To(Succeed())
	}
	entries, _, _ := unstructured.NestedSlice(object, "status", "inventory", "entries")
	kept := slices.DeleteFunc(slices.Clone(entries), func(e any) bool {
		id, _, _ := unstructured.NestedString(e.(map[string]any), "id")
		return strings.Contains(id, "_ksctl-generated-")
	})
	if len(kept) < len(entries) {
		// The Secret counts as an object, and the warning that random strings change with the chart
		// is gone.
		Expect(unstructured.SetNestedSlice(object, kept, "status", "inventory", "entries")).To(Succeed())
		for _, path := range [][]string{{"status", "inventory", "settled"}, {"status", "inventory", "settledIDs"},
			{"status", "warnings"}, {"status", "components"}, {"status", "conditions"}} {
			was, _, err := unstructured.NestedFieldCopy(was, path...)
			Expect(err).NotTo(HaveOccurred())
			Expect(unstructured.SetNestedField(object, was, path...)).To(Succeed())
		}
		Expect(value).To(And(ContainSubstring("2 components, 5 objects ready"), Not(ContainSubstring("randAlphaNum"))))
	}
	out, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// review is met by requests that ask for rights or identities, and by events: they change no
// object of anybody.
func review(r cluster.Request) bool {
	return strings.HasSuffix(r.Resource, "reviews") || r.Resource == "events" || cluster.DryRun(r)
}
