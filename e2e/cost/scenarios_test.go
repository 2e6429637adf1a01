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

// The scenarios of e2e/bench, with few installs: their cost for the API server does not depend
// on the machine.
var _ = Describe("The scenarios of the benchmark", func() {
	const n, objects = 6, 4
	name := func(i int) string { return fmt.Sprintf("i%d", i) }
	// Each install has a folder of its own with a ConfigMap that has a value.
	publish := func(ctx context.Context, ns, revision string, values [n]string) {
		GinkgoHelper()
		files := map[string]string{}
		for i, value := range values {
			dir := "stacks/" + name(i) + "/"
			files[dir+"stack.yaml"] = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" +
				harness.OneComponent
			files[dir+"main/all.yaml"] = configMap(name(i), value) + "---\n" + configMap(name(i)+"-fixed", "1") +
				fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %[1]s}\n---\napiVersion: "+
					"v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {selector: {app: %[1]s}, ports: [{port: 80}]}\n",
					name(i))
		}
		Expect(h.PublishSource(ctx, ns, "src", revision, artifacts.Files(files))).To(Succeed())
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
		startController(ns)
		var installs []*appsv1.KsctlInstall
		ready := func(revision string) {
			GinkgoHelper()
			for _, in := range installs {
				atRevision(ctx, in, revision)
			}
		}
		// costs checks the requests of the controller while something happens.
		costs := func(want tally, happen func()) {
			GinkgoHelper()
			mark, err := h.ControlPlane.AuditMark(ctx)
			Expect(err).NotTo(HaveOccurred())
			start := time.Now()
			happen()
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			Expect(err).NotTo(HaveOccurred())
			// The controller may still be starting, when it reads its Secret.
			requests = ours(requests).Without(cluster.Resource("secrets"))
			Expect(count(requests)).To(cost(want, want[statusWrite], n, time.Since(start)), requests.String())
		}

		By("a: first apply: for each install a finalizer, an intent, " +
			"its objects and an outcome, and for each kind a list")
		publish(ctx, ns, "r1", all("1"))
		costs(tally{"patch ksctlinstalls": n, statusWrite: 2 * n,
			"patch configmaps": 2 * n, "patch serviceaccounts": n, "patch services": n,
			"list configmaps": 1, "list serviceaccounts": 1, "list services": 1}, func() {
			for i := range n {
				in := harness.NewInstall(ns, name(i))
				in.Labels = map[string]string{"spec": ns}
				in.Spec.Path = "stacks/" + name(i)
				Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
				installs = append(installs, in)
			}
			ready("r1")
		})

		By("d1: idle: no request")
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		Consistently(ctx, func() (string, error) {
			requests, err := h.ControlPlane.AuditSince(ctx, mark)
			return ours(requests).String(), err
		}, 2*time.Second, 500*time.Millisecond).Should(HavePrefix("0 requests"), "an idle controller makes no request")

		By("b: one object of each install changes: one write of the object and one of the status")
		costs(tally{"patch configmaps": n, statusWrite: n}, func() {
			publish(ctx, ns, "r2", all("2"))
			ready("r2")
		})

		By("c: one object of one install changes: one write of the object, " +
			"and each install writes the revision to its status")
		costs(tally{"patch configmaps": 1, statusWrite: n}, func() {
			values := all("2")
			values[0] = "3"
			publish(ctx, ns, "r3", values)
			ready("r3")
		})

		By("d2: a reconcile request for each install: one status write each")
		costs(tally{statusWrite: n}, func() { requestAll(ctx, installs, "now") })

		By("e: one object of each install is edited by hand: one write of the object")
		costs(tally{"patch configmaps": n}, func() { edit(ctx, ns, name, n) })

		By("i: removal: each object is deleted, and each finalizer removed")
		mark, err = h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		start := time.Now()
		for _, in := range installs {
			Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		}
		for _, in := range installs {
			Eventually(ctx, func() bool {
				return apierrors.IsNotFound(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in))
			}, soon, 50*time.Millisecond).Should(BeTrue(), "the install is deleted")
		}
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		// An install that is gone before its status is due needs no status write.
		Expect(count(ours(requests).Where(cluster.Write))).To(cost(tally{"delete configmaps": 2 * n,
			"delete serviceaccounts": n, "delete services": n,
			statusWrite: n, "patch ksctlinstalls": n}, 0, n, time.Since(start)), ours(requests).String())
		// A watch event of a deletion is confirmed by a read, unless the response to the delete
		// did that.
		Expect(len(ours(requests).Without(cluster.Write))).To(BeNumerically("<=", objects*n), ours(requests).String())
	})
})

// tally is the number of requests by verb and resource.
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

// cost matches a tally exactly, except for status writes: at least the given number, and at most
// that of the tally plus one a second for each of n installs, which report progress when a step
// takes long on a slow machine.
func cost(want tally, minWrites, n int, took time.Duration) types.GomegaMatcher {
	maxWrites := want[statusWrite]
	if maxWrites > 0 {
		maxWrites += n * int(took/time.Second)
	}
	writes := func(got tally) int { return got[statusWrite] }
	rest := func(t tally) tally {
		out := maps.Clone(t)
		delete(out, statusWrite)
		return out
	}
	return And(
		WithTransform(rest, Equal(rest(want))),
		WithTransform(writes, And(BeNumerically(">=", minWrites), BeNumerically("<=", maxWrites))),
	)
}

// edit changes an object of each install, and waits until the changes are corrected.
func edit(ctx context.Context, ns string, name func(int) string, n int) {
	GinkgoHelper()
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name(i) + "-fixed"}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"edited"}}`))
		Expect(h.ControlPlane.Client().Patch(ctx, cm, patch)).To(Succeed())
	}
	for i := range n {
		Eventually(ctx, func() (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: name(i) + "-fixed"}, cm)
			return cm.Data["value"], err
		}, soon, 20*time.Millisecond).Should(Equal("1"), "the edit is corrected")
	}
}
