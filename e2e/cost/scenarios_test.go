package cost_test

import (
	"context"
	"fmt"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
)

// The scenarios of e2e/bench, with few installs: what they cost the API server
// does not depend on the machine.
var _ = Describe("The scenarios of the benchmark", func() {
	const n, objects = 6, 4
	name := func(i int) string { return fmt.Sprintf("i%d", i) }
	// Each install has a folder of its own, whose ConfigMap has a value.
	publish := func(ctx context.Context, ns, revision string, values [n]string) {
		GinkgoHelper()
		files := map[string]string{}
		for i, value := range values {
			dir := "stacks/" + name(i) + "/"
			files[dir+"stack.yaml"] = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" + harness.OneComponent
			files[dir+"main/all.yaml"] = configMap(name(i), value) + "---\n" + configMap(name(i)+"-fixed", "1") +
				fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %[1]s}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {selector: {app: %[1]s}, ports: [{port: 80}]}\n", name(i))
		}
		Expect(h.Publish(ctx, ns, "src", revision, artifacts.Files(files))).To(Succeed())
	}
	all := func(value string) (out [n]string) {
		for i := range out {
			out[i] = value
		}
		return out
	}

	It("cost exact numbers of requests", func(ctx SpecContext) {
		ns, err := h.Namespace(ctx, "scenarios")
		Expect(err).NotTo(HaveOccurred())
		controller(ns)
		var installs []*appsv1.KsctlInstall
		ready := func(revision string) {
			GinkgoHelper()
			for _, in := range installs {
				atRevision(ctx, in, revision)
			}
		}
		// costs asserts what the controller asks for while something happens.
		costs := func(want tally, happen func()) {
			GinkgoHelper()
			mark, err := h.Plane.AuditMark(ctx)
			Expect(err).NotTo(HaveOccurred())
			start := time.Now()
			happen()
			requests, err := h.Plane.AuditSince(ctx, mark)
			Expect(err).NotTo(HaveOccurred())
			// The controller may still be starting: it reads its Secret.
			requests = ours(requests).Without(cluster.Resource("secrets"))
			Expect(count(requests)).To(cost(want, want[statusWrite], n, time.Since(start)), requests.String())
		}

		By("a: from nothing to all Ready: a finalizer, an intent, the objects and an outcome for each, and a list for each kind")
		publish(ctx, ns, "r1", all("1"))
		costs(tally{"patch ksctlinstalls": n, statusWrite: 2 * n,
			"patch configmaps": 2 * n, "patch serviceaccounts": n, "patch services": n,
			"list configmaps": 1, "list serviceaccounts": 1, "list services": 1}, func() {
			for i := range n {
				in := harness.Install(ns, name(i))
				in.Labels = map[string]string{"spec": ns}
				in.Spec.Path = "stacks/" + name(i)
				Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
				installs = append(installs, in)
			}
			ready("r1")
		})

		By("d1: idle: nothing")
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		Consistently(ctx, func() (string, error) {
			requests, err := h.Plane.AuditSince(ctx, mark)
			return ours(requests).String(), err
		}, 2*time.Second, 500*time.Millisecond).Should(HavePrefix("0 requests"), "nothing happens, so nothing is asked")

		By("b: one object of each changes: a write to it and one to the status")
		costs(tally{"patch configmaps": n, statusWrite: n}, func() {
			publish(ctx, ns, "r2", all("2"))
			ready("r2")
		})

		By("c: one object of one changes: a write to it, and each says that it is at the revision")
		costs(tally{"patch configmaps": 1, statusWrite: n}, func() {
			values := all("2")
			values[0] = "3"
			publish(ctx, ns, "r3", values)
			ready("r3")
		})

		By("d2: a forced reconcile of each: an answer from each")
		costs(tally{statusWrite: n}, func() { requestAll(ctx, installs, "now") })

		By("e: one object of each is edited by hand: a write to it")
		costs(tally{"patch configmaps": n}, func() { edit(ctx, ns, name, n) })

		By("i: removal: each object is deleted, and each install let go")
		mark, err = h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		start := time.Now()
		for _, in := range installs {
			Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		}
		for _, in := range installs {
			Eventually(ctx, func() bool {
				return apierrors.IsNotFound(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in))
			}, soon, 50*time.Millisecond).Should(BeTrue(), "the install goes")
		}
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		// What has gone before it could be said needs no status.
		Expect(count(ours(requests).Where(cluster.Write))).To(cost(tally{"delete configmaps": 2 * n, "delete serviceaccounts": n, "delete services": n,
			statusWrite: n, "patch ksctlinstalls": n}, 0, n, time.Since(start)), ours(requests).String())
		// An event that one is gone is confirmed by a look, unless the answer to the delete has said so.
		Expect(len(ours(requests).Without(cluster.Write))).To(BeNumerically("<=", objects*n), ours(requests).String())
	})
})

// tally is a number of requests by verb and resource.
type tally map[string]int

func count(rs cluster.Requests) tally {
	out := tally{}
	for _, r := range rs {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		out[r.Verb+" "+resource]++
	}
	return out
}

const statusWrite = "patch ksctlinstalls/status"

// cost matches a tally exactly, but for writes of the status: there are at least so
// many, and at most those of the tally and one a second for each of n installs,
// which says how far it is when a step takes long, on a slow machine.
func cost(want tally, least, n int, took time.Duration) types.GomegaMatcher {
	most := want[statusWrite]
	if most > 0 {
		most += n * int(took/time.Second)
	}
	writes := func(got tally) int { return got[statusWrite] }
	rest := func(t tally) tally {
		out := maps.Clone(t)
		delete(out, statusWrite)
		return out
	}
	return And(
		WithTransform(rest, Equal(rest(want))),
		WithTransform(writes, And(BeNumerically(">=", least), BeNumerically("<=", most))),
	)
}

// edit changes an object of each install, and waits until they are as they were.
func edit(ctx context.Context, ns string, name func(int) string, n int) {
	GinkgoHelper()
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name(i) + "-fixed"}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"edited"}}`))
		Expect(h.Plane.Client().Patch(ctx, cm, patch)).To(Succeed())
	}
	for i := range n {
		Eventually(ctx, func() (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: name(i) + "-fixed"}, cm)
			return cm.Data["value"], err
		}, soon, 20*time.Millisecond).Should(Equal("1"), "the edit is corrected")
	}
}
