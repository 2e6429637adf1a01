package install_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/manager"
)

// hourly makes timers irrelevant in a spec: everything that happens is caused by an event.
func hourly(in *appsv1.KsctlInstall) {
	hour := metav1.Duration{Duration: time.Hour}
	in.Spec.Interval, in.Spec.RetryInterval, in.Spec.Timeout = &hour, &hour, &hour
}

// retryEvery is like hourly, but retries failures after a shorter interval.
func retryEvery(after time.Duration) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		hourly(in)
		in.Spec.RetryInterval = &metav1.Duration{Duration: after}
	}
}

// controllerLabel is the label of objects that the suite's controller ignores because a spec
// starts a controller of its own for them.
const controllerLabel = "e2e.ksctl.com/controller"

func sharedController(o *manager.Options) { o.Watch.LabelSelector = "!" + controllerLabel }

// dedicated configures a controller that reconciles only the objects with its label.
func dedicated(name string) func(*manager.Options) {
	return func(o *manager.Options) {
		o.OwnerID = name
		o.Watch.LabelSelector = controllerLabel + "=" + name
	}
}

// forController labels an object for a dedicated controller.
func forController[T client.Object](name string) func(T) {
	return func(o T) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[controllerLabel] = name
		o.SetLabels(labels)
	}
}

// components returns the spec of a stack. Each argument is a component name, optionally
// followed by a colon and the names of its dependencies. The manifests of a component are in
// the folder of its name.
func components(list ...string) string {
	var b strings.Builder
	b.WriteString("spec:\n  version: 1.0.0\n  components:\n")
	for _, c := range list {
		name, needs, _ := strings.Cut(c, ":")
		fmt.Fprintf(&b, "  - {name: %[1]s, manifests: [%[1]s/], dependsOn: [%[2]s]}\n", name, needs)
	}
	return b.String()
}

// pods returns a pod template with a fate for the simulated kubelet; "" means normal pods.
func pods(name, fate string) string {
	return fmt.Sprintf(`
  template:
    metadata: {labels: {app: %q}, annotations: {%s: %q}}
    spec: {containers: [{name: main, image: "example.com/main:1"}]}
`, name, cluster.FateAnnotation, fate)
}

func deployment(name, fate string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %[1]q}\nspec:\n  replicas: 1\n"+
		"  selector: {matchLabels: {app: %[1]q}}%s", name, pods(name, fate))
}

// makePodsReady removes the fate of a namespace's pods, so that they become ready. It waits until
// such pods exist. makePodsUnready makes ready pods unready.
func makePodsReady(ctx context.Context, ns string) {
	GinkgoHelper()
	changePods(ctx, ns, true, func(p *corev1.Pod) { delete(p.Annotations, cluster.FateAnnotation) })
}

func makePodsUnready(ctx context.Context, ns string) {
	GinkgoHelper()
	changePods(ctx, ns, false, func(p *corev1.Pod) {
		p.Annotations = map[string]string{cluster.FateAnnotation: cluster.FateNeverReady}
	})
}

// changePods changes the pods that have a fate, or those that have none. It skips pods that
// are changed already or terminating.
func changePods(ctx context.Context, ns string, hasFate bool, change func(*corev1.Pod)) {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func() ([]corev1.Pod, error) {
		var list corev1.PodList
		err := plane.Client().List(ctx, &list, client.InNamespace(ns))
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || hasFate != (p.Annotations[cluster.FateAnnotation] != "")
		})
		return pods, err
	}, soon).ShouldNot(BeEmpty(), "the pods exist")
	for i := range pods {
		pod := &pods[i]
		before := pod.DeepCopy()
		change(pod)
		Expect(client.IgnoreNotFound(plane.Client().Patch(ctx, pod, client.MergeFrom(before)))).
			To(Succeed(), "a pod may be gone by now")
	}
}

// sourceForController creates the KsctlSource that publish then updates, with the label of a
// dedicated controller.
func sourceForController(ctx context.Context, ns, name, controller string) {
	GinkgoHelper()
	src := &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, name)}
	forController[*appsv1.KsctlSource](controller)(src)
	src.Spec = appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true},
		Git: &appsv1.GitSource{URL: "http://git.example.com/x"}}
	Expect(plane.Client().Create(ctx, src)).To(Succeed())
}

// definition returns a CustomResourceDefinition of a kind Widget in a group.
func definition(group, scope string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: %[2]s
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, scope)
}

func widget(group, name string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: %s}\nspec: {size: 1}\n", group, name)
}

func widgetObject(group, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group + "/v1")
	u.SetKind("Widget")
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// deleteDefinition deletes the CustomResourceDefinition of a group at the end of the spec.
func deleteDefinition(group string) string {
	DeferCleanup(func(ctx SpecContext) {
		crd := &metav1.PartialObjectMetadata{}
		crd.SetGroupVersionKind(crdKind)
		crd.SetName("widgets." + group)
		Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, crd))).To(Succeed())
	})
	return group
}

var crdKind = (&unstructured.Unstructured{Object: map[string]any{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}).GroupVersionKind()

// tenant returns the user that installs of a namespace impersonate.
func tenant(ns string) string { return cluster.ServiceAccountUser(ns, "deployer") }

// requestsSince returns the requests after a mark in the audit log that match all conditions.
func requestsSince(ctx context.Context, mark cluster.Mark, conditions ...cluster.RequestFilter) cluster.Requests {
	GinkgoHelper()
	all, err := plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	return all.Where(conditions...)
}

func auditMark(ctx context.Context) cluster.Mark {
	GinkgoHelper()
	mark, err := plane.AuditMark(ctx)
	Expect(err).NotTo(HaveOccurred())
	return mark
}

// eventsOf returns the events of an install, oldest first.
func eventsOf(ctx context.Context, in *appsv1.KsctlInstall) []corev1.Event {
	GinkgoHelper()
	var list corev1.EventList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(in.Namespace))).To(Succeed())
	out := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID != in.UID })
	slices.SortStableFunc(out, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return out
}

// isStartupEvent reports whether an event is about a dependency that the spec created just
// before the install: the watch of the controller may lag behind.
func isStartupEvent(e corev1.Event) bool {
	return slices.Contains([]string{"SourceNotFound", "SourceNotReady", "ServiceAccountNotFound"}, e.Reason)
}

func condition(in *appsv1.KsctlInstall, kind string) *metav1.Condition {
	return apimeta.FindStatusCondition(in.Status.Conditions, kind)
}

// component returns the status of a component of an install.
func component(in *appsv1.KsctlInstall, name string) appsv1.ComponentStatus {
	for _, c := range in.Status.Components {
		if c.Name == name {
			return c
		}
	}
	return appsv1.ComponentStatus{}
}

// absent reports whether an object does not exist.
func absent(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return apierrors.IsNotFound(err)
}

func objectMeta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

func aConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: objectMeta(ns, name)}
}

func aDeployment(ns, name string) *k8sappsv1.Deployment {
	return &k8sappsv1.Deployment{ObjectMeta: objectMeta(ns, name)}
}

// reports waits until the Ready condition of an install has a status and a reason, and its
// message contains all texts.
func reports(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		if err := get(ctx, in); err != nil {
			return err.Error()
		}
		c := ready(in)
		if c.Status != status || c.Reason != reason || in.Status.ObservedGeneration != in.Generation {
			return fmt.Sprintf("Ready is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		for _, t := range texts {
			if !strings.Contains(c.Message, t) {
				return fmt.Sprintf("Ready is %s/%s, and %q is not in its message: %s", c.Status, c.Reason, t, c.Message)
			}
		}
		return ""
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "the install reports %s/%s", status, reason)
}
