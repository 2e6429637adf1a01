package systems_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/harness"
)

// releaseMany creates 20 scripts of the account busy at once, while the controller and builders are
// killed, and waits until all of them are served.
func (w *workerServers) releaseMany(ctx context.Context) {
	GinkgoHelper()
	account := object(workersKind("WorkerAccount"), "workers", "busy")
	Expect(plane.Client().Create(ctx, account)).To(Succeed())
	all := map[int]*unstructured.Unstructured{}
	for i := range 20 {
		name := fmt.Sprintf("w%02d", i)
		w.files.put("/busy/"+name+".mjs", "export default { fetch() { return new Response('"+name+"') } }")
		all[8100+i] = workerDeployment("busy", name, int64(8100+i), w.files.url+"/busy/"+name+".mjs")
	}
	for _, o := range all {
		Expect(plane.Client().Create(ctx, o)).To(Succeed())
	}
	w.killAtRandom(ctx)
	for _, port := range slices.Sorted(maps.Keys(all)) {
		becomes(ctx, all[port], "Ready", "True ")
	}
	becomes(ctx, account, "Ready", "True ")
	w.settles(ctx, "busy")
	bundles := &unstructured.UnstructuredList{}
	bundles.SetGroupVersionKind(workersKind("WorkerBundleList"))
	Expect(plane.Client().List(ctx, bundles, client.InNamespace("workers"),
		client.MatchingLabels{"accounts": "busy"})).To(Succeed())
	Expect(bundles.Items).To(HaveLen(1))
	workers, _, err := unstructured.NestedSlice(bundles.Items[0].Object, "spec", "workers")
	Expect(err).NotTo(HaveOccurred())
	Expect(workers).To(HaveLen(20))
	for port := range all {
		w.serves(ctx, "busy", port, "/", fmt.Sprintf("200 w%02d", port-8100))
	}
}

// killAtRandom kills the controller and builders several times. Then the controller of the suite
// runs again.
func (w *workerServers) killAtRandom(ctx context.Context) {
	GinkgoHelper()
	Expect(controller.Stop()).To(Succeed())
	killed := w.startController(ctx)
	defer func() {
		killed.Kill()
		controller.Start()
	}()
	for range 8 {
		w.waits(ctx, time.Duration(1+random(4))*time.Second)
		w.killBuilder(ctx)
		killed.Kill()
		killed = w.startController(ctx)
	}
}

// startController starts the controller as a process that can be killed.
func (w *workerServers) startController(ctx context.Context) *harness.Process {
	GinkgoHelper()
	p, err := h.StartProcess(ctx, h.Config, "--kind-groups="+strings.Join(groups, ","))
	Expect(err).NotTo(HaveOccurred())
	return p
}

// killBuilder kills the pod of a Job, if one runs.
func (w *workerServers) killBuilder(ctx context.Context) {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(plane.Client().List(ctx, &pods, client.InNamespace("workers"), client.HasLabels{"job-name"})).To(Succeed())
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	if len(running) == 0 {
		return
	}
	p := &running[random(int64(len(running)))]
	Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, p,
		&client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))).To(Succeed())
}

func random(n int64) int64 {
	GinkgoHelper()
	i, err := rand.Int(rand.Reader, big.NewInt(n))
	Expect(err).NotTo(HaveOccurred())
	return i.Int64()
}
