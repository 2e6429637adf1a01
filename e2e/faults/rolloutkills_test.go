package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// rolledOutObjects is the number of objects that a rollout changes.
const rolledOutObjects = 200

// rolledOut is a published kind with a rollout. Each object makes a NetworkPolicy, whose generation
// counts its changes.
type rolledOut struct {
	*installSet
	group string
	kind  *appsv1.KsctlKind
}

const policyStack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: policy}
spec:
  version: 1.0.0
  components: [{name: main, manifests: [main.yaml]}]
  serves:
    group: GROUP
    kind: Policy
    plural: policies
    versions: [{name: v1}]
    install: {retryInterval: 1s, components: [{name: main, namePrefix: {expr: self.metadata.name + '-'}}]}
`

const policyObject = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {matchLabels: {version: VERSION}}}
`

// newRolledOut creates the kind, with the permissions that docs/kinds.md describes.
func newRolledOut(ctx context.Context) *rolledOut {
	GinkgoHelper()
	f := newInstallSet(ctx, nil)
	r := &rolledOut{installSet: f, group: f.ns + ".example.com"}
	f.flags = []string{"--kind-groups=" + r.group}
	Expect(harness.AllowKinds(ctx, h.ControlPlane, r.group)).To(Succeed())
	r.publish(ctx, 1, "one")
	r.kind = &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: f.ns, Labels: map[string]string{"fleet": f.ns}},
		Spec: appsv1.KsctlKindSpec{Path: "stacks", Stack: "policy", ServiceAccountName: harness.Deployer,
			DeletionPolicy: appsv1.KindDeletionDelete,
			Rollout:        &appsv1.KindRollout{MaxConcurrent: ptr.To[int32](20)},
			SourceRef:      appsv1.SourceRef{Kind: "KsctlSource", Namespace: f.ns, Name: "fleet"}}}
	Expect(h.ControlPlane.Client().Create(ctx, r.kind)).To(Succeed())
	return r
}

// publish publishes a revision of the source, with a version of the stack.
func (r *rolledOut) publish(ctx context.Context, revision int, version string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, r.ns, "fleet", fmt.Sprint("main@sha1:", revision), artifacts.Files(map[string]string{
		"README.md":                fmt.Sprint("revision ", revision),
		"stacks/policy/stack.yaml": strings.ReplaceAll(policyStack, "GROUP", r.group),
		"stacks/policy/main.yaml":  strings.ReplaceAll(policyObject, "VERSION", version)}))).To(Succeed())
}

func (r *rolledOut) create(ctx context.Context, n int) {
	GinkgoHelper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.group + "/v1", "kind": "Policy"}}
	u.SetNamespace(r.ns)
	u.SetName(fmt.Sprintf("p%03d", n))
	Expect(h.ControlPlane.Client().Create(ctx, u)).To(Succeed())
}

// converged returns an error unless the KsctlKind is Ready at a revision of the source, and each
// NetworkPolicy has a version of the stack.
func (r *rolledOut) converged(ctx context.Context, revision int, version string) error {
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(r.kind), r.kind); err != nil {
		return err
	}
	ready := apimeta.FindStatusCondition(r.kind.Status.Conditions, appsv1.ReadyCondition)
	count := ptr.Deref(r.kind.Status.Objects, appsv1.KindObjects{})
	if ready == nil || ready.Status != "True" || count.Updated != rolledOutObjects ||
		r.kind.Status.LastAppliedRevision != fmt.Sprint("main@sha1:", revision) {
		return fmt.Errorf("%+v, %+v, at %s", ready, count, r.kind.Status.LastAppliedRevision)
	}
	for name, policy := range r.policies(ctx) {
		if got := policy.Spec.PodSelector.MatchLabels["version"]; got != version {
			return fmt.Errorf("%s has version %s", name, got)
		}
	}
	return nil
}

func (r *rolledOut) policies(ctx context.Context) map[string]networkingv1.NetworkPolicy {
	GinkgoHelper()
	var list networkingv1.NetworkPolicyList
	Expect(h.ControlPlane.Client().List(ctx, &list, client.InNamespace(r.ns))).To(Succeed())
	out := map[string]networkingv1.NetworkPolicy{}
	for _, policy := range list.Items {
		out[policy.Name] = policy
	}
	return out
}

func (r *rolledOut) awaitConverged(ctx context.Context, revision int, version string) {
	GinkgoHelper()
	Eventually(ctx, r.converged).WithArguments(revision, version).WithTimeout(soon).
		WithPolling(200*time.Millisecond).Should(Succeed(), "the rollout is complete")
}

var _ = Describe("A rollout of a revision to the objects of a kind", suite.Safety, func() {
	It("changes each object once, whenever the controller is killed, and while the source moves on",
		func(ctx SpecContext) {
			r, p, random := newRolledOut(ctx), newProxy(), rand.New(rand.NewPCG(seed, 3))
			life := startController(ctx, r.installSet, p)
			Eventually(ctx, func() (string, error) {
				err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(r.kind), r.kind)
				return r.kind.Status.LastAppliedRevision, err
			}).WithTimeout(soon).ShouldNot(BeEmpty(), "the kind is served")
			for n := range rolledOutObjects {
				r.create(ctx, n)
			}
			r.awaitConverged(ctx, 1, "one")
			Expect(r.policies(ctx)).To(HaveLen(rolledOutObjects))

			By("killing the controller in the middle of a rollout")
			r.publish(ctx, 2, "two")
			life.Kill()
			idle := 0
			for n := range max(4, kills()/2) {
				if r.killOnce(ctx, p, random) == whileIdle {
					idle++
				}
				if n == 1 {
					By("moving the source on, without a change of the stack")
					r.publish(ctx, 3, "two")
				}
			}
			changed := 0
			for _, policy := range r.policies(ctx) {
				if policy.Generation > 1 {
					changed++
				}
			}
			life = startController(ctx, r.installSet, p)
			r.awaitConverged(ctx, 3, "two")
			for name, policy := range r.policies(ctx) {
				Expect(policy.Generation).To(BeEquivalentTo(2), "%s was changed once", name)
			}
			AddReportEntry("rollout", fmt.Sprintf("%d of %d objects were changed between the kills, %d kills while "+
				"idle", changed, rolledOutObjects, idle), ReportEntryVisibilityAlways)

			By("removing the kind")
			c := h.ControlPlane.Client()
			Expect(c.Delete(ctx, r.kind)).To(Succeed())
			Eventually(ctx, func() bool {
				return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(r.kind), r.kind))
			}).WithTimeout(soon).Should(BeTrue(), "the kind is removed")
			Expect(r.policies(ctx)).To(BeEmpty())
			life.Kill()
		}, SpecTimeout(time.Hour))
})
