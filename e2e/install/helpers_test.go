package install_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// quiet is how long an absence must last for a spec to accept it.
const quiet = 3 * time.Second

// stack publishes a stack of one component as the source that newInstall refers to.
func stack(ctx context.Context, ns, revision string, docs ...string) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%03d.yaml", i)] = d
	}
	publish(ctx, ns, "src", revision, tree(oneComponent, files))
}

func withAdopt(mode appsv1.AdoptMode) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.Adopt = mode }
}

func withDrift(d appsv1.Drift) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.Drift = &d }
}

// edit updates the spec of an install and retries conflicts.
func edit(ctx context.Context, in *appsv1.KsctlInstall, change func(*appsv1.KsctlInstall)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := get(ctx, in); err != nil {
			return err
		}
		change(in)
		return plane.Client().Update(ctx, in)
	}, soon, 20*time.Millisecond).Should(Succeed(), "the spec is changed")
}

// suspend suspends an install and waits until the controller has observed that.
func suspend(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true })
	Eventually(ctx, func() error { return harness.CheckSuspended(in) }, soon, 20*time.Millisecond).Should(Succeed())
}

func resume(in *appsv1.KsctlInstall) { in.Spec.Suspend = false }

// kubectl runs kubectl in a namespace, with standard input, and returns its output.
func kubectl(ctx context.Context, ns, stdin string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, plane.Kubectl(),
		append([]string{"--kubeconfig", plane.Kubeconfig(), "--namespace", ns}, args...)...)
	cmd.Env = []string{"HOME=" + GinkgoT().TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "kubectl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// patch sends a merge patch with a field manager of its own.
func patch(ctx context.Context, o client.Object, manager, body string) error {
	return plane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner(manager))
}

// getConfigMap returns a ConfigMap, which must exist.
func getConfigMap(ctx context.Context, ns, name string) *corev1.ConfigMap {
	GinkgoHelper()
	cm := aConfigMap(ns, name)
	Expect(get(ctx, cm)).To(Succeed(), "ConfigMap %s exists", name)
	return cm
}

// foreignConfigMap creates a ConfigMap that no install has.
func foreignConfigMap(ctx context.Context, ns, name string, meta metav1.ObjectMeta) *corev1.ConfigMap {
	GinkgoHelper()
	meta.Namespace, meta.Name = ns, name
	cm := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"value": "theirs", "more": "theirs"}}
	Expect(plane.Client().Create(ctx, cm, client.FieldOwner("somebody"))).To(Succeed())
	return cm
}

// expectReleased checks that an object has a value, and no label or annotation of ours.
func expectReleased(ctx context.Context, before *corev1.ConfigMap, value string) {
	GinkgoHelper()
	now := getConfigMap(ctx, before.Namespace, before.Name)
	Expect(now.UID).To(Equal(before.UID), "it is the same object")
	Expect(now.Labels).To(Equal(before.Labels), "labels are as they were")
	Expect(now.Annotations).To(Equal(before.Annotations), "annotations are as they were")
	Expect(now.Data).To(Equal(map[string]string{"value": value, "more": "theirs"}))
}

// expectOwnedBy checks that the mark of an object refers to an install.
func expectOwnedBy(o client.Object, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	m, err := live.ParseMark(o.GetAnnotations()[live.MarkAnnotation])
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Owner).To(HaveSuffix("/" + in.Namespace + "/" + in.Name))
}

// requestReconcile requests a reconcile and waits until it is handled.
func requestReconcile(ctx context.Context, in *appsv1.KsctlInstall, token string) {
	GinkgoHelper()
	Expect(patch(ctx, in, "somebody", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation,
		token))).To(Succeed())
	Eventually(ctx, func() (string, error) {
		err := get(ctx, in)
		return in.Status.LastHandledReconcileAt, err
	}, soon, 20*time.Millisecond).Should(Equal(token), "the request is answered")
}

// writes returns the write requests for the installs of a namespace since a mark.
func writes(ctx context.Context, ns string, mark cluster.Mark) cluster.Requests {
	GinkgoHelper()
	return requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
}

// expectNoWrites checks that there are no write requests for the installs of a namespace.
func expectNoWrites(ctx context.Context, ns string, mark cluster.Mark, why string) {
	GinkgoHelper()
	Consistently(ctx, func() cluster.Requests {
		return writes(ctx, ns, mark)
	}, quiet, 500*time.Millisecond).Should(BeEmpty(), why)
}

// eventsWithReason returns a function for Eventually: events arrive some time after the status
// that they are about.
func eventsWithReason(ctx context.Context, in *appsv1.KsctlInstall, reason string) func() []corev1.Event {
	return func() []corev1.Event {
		GinkgoHelper()
		return slices.DeleteFunc(eventsOf(ctx, in), func(e corev1.Event) bool { return e.Reason != reason })
	}
}
