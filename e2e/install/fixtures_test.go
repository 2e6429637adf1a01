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

// hourly keeps timers out of a spec: what happens in it, an event made happen.
func hourly(in *appsv1.KsctlInstall) {
	hour := metav1.Duration{Duration: time.Hour}
	in.Spec.Interval, in.Spec.RetryInterval, in.Spec.Timeout = &hour, &hour, &hour
}

// retrying is hourly but for what failed.
func retrying(after time.Duration) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		hourly(in)
		in.Spec.RetryInterval = &metav1.Duration{Duration: after}
	}
}

// ownController labels objects that the suite's controller leaves to one that a
// spec starts for itself.
const ownController = "e2e.ksctl.com/controller"

func shared(o *manager.Options) { o.Watch.LabelSelector = "!" + ownController }

// alone makes a controller one of its own, with its own objects.
func alone(name string) func(*manager.Options) {
	return func(o *manager.Options) {
		o.OwnerID = name
		o.Watch.LabelSelector = ownController + "=" + name
	}
}

// leftTo labels an object for a controller of its own.
func leftTo[T client.Object](name string) func(T) {
	return func(o T) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[ownController] = name
		o.SetLabels(labels)
	}
}

// components is the spec of a stack: each argument is a name, and after a colon
// the names that it depends on. The manifests of each are in the folder of its name.
func components(list ...string) string {
	var b strings.Builder
	b.WriteString("spec:\n  version: 1.0.0\n  components:\n")
	for _, c := range list {
		name, needs, _ := strings.Cut(c, ":")
		fmt.Fprintf(&b, "  - {name: %[1]s, manifests: [%[1]s/], dependsOn: [%[2]s]}\n", name, needs)
	}
	return b.String()
}

// pods is a template of pods that share a fate, "" for the usual one.
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

// cheer lets the pods of a namespace become ready that were never to be, as soon as
// there are any; doom has those that are ready be so no more.
func cheer(ctx context.Context, ns string) {
	GinkgoHelper()
	changePods(ctx, ns, true, func(p *corev1.Pod) { delete(p.Annotations, cluster.FateAnnotation) })
}

func doom(ctx context.Context, ns string) {
	GinkgoHelper()
	changePods(ctx, ns, false, func(p *corev1.Pod) { p.Annotations = map[string]string{cluster.FateAnnotation: cluster.FateNeverReady} })
}

// changePods changes the pods that have a fate, or those that have none. Such as are
// done, or on their way, are no longer concerned.
func changePods(ctx context.Context, ns string, fated bool, change func(*corev1.Pod)) {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func() ([]corev1.Pod, error) {
		var list corev1.PodList
		err := plane.Client().List(ctx, &list, client.InNamespace(ns))
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || fated != (p.Annotations[cluster.FateAnnotation] != "")
		})
		return pods, err
	}, soon).ShouldNot(BeEmpty(), "the pods are made")
	for i := range pods {
		pod := &pods[i]
		before := pod.DeepCopy()
		change(pod)
		Expect(client.IgnoreNotFound(plane.Client().Patch(ctx, pod, client.MergeFrom(before)))).To(Succeed(), "one that went is of no concern")
	}
}

// ownSource makes the KsctlSource that publish is to use with a label for a
// controller of its own.
func ownSource(ctx context.Context, ns, name, controller string) {
	GinkgoHelper()
	src := &appsv1.KsctlSource{ObjectMeta: named(ns, name)}
	leftTo[*appsv1.KsctlSource](controller)(src)
	src.Spec = appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true}, Git: &appsv1.GitSource{URL: "http://git.example.com/x"}}
	Expect(plane.Client().Create(ctx, src)).To(Succeed())
}

// definition is a CustomResourceDefinition of a kind Widget in a group of its own.
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

// defined deletes a CustomResourceDefinition at the end of the spec.
func defined(group string) string {
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

// tenant is as whom installs of a namespace act.
func tenant(ns string) string { return cluster.ServiceAccountUser(ns, "deployer") }

// since returns the requests of a condition after a mark.
func since(ctx context.Context, mark cluster.Mark, conditions ...cluster.Condition) cluster.Requests {
	GinkgoHelper()
	all, err := plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	return all.Where(conditions...)
}

func marked(ctx context.Context) cluster.Mark {
	GinkgoHelper()
	mark, err := plane.AuditMark(ctx)
	Expect(err).NotTo(HaveOccurred())
	return mark
}

// eventsOf are the events of an install, oldest first.
func eventsOf(ctx context.Context, in *appsv1.KsctlInstall) []corev1.Event {
	GinkgoHelper()
	var list corev1.EventList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(in.Namespace))).To(Succeed())
	out := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID != in.UID })
	slices.SortStableFunc(out, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return out
}

// isEarly is true of an event of an install that waited for what a spec has made just before
// it: the watch that tells of it may be behind.
func isEarly(e corev1.Event) bool {
	return slices.Contains([]string{"SourceNotFound", "SourceNotReady", "ServiceAccountNotFound"}, e.Reason)
}

func condition(in *appsv1.KsctlInstall, kind string) *metav1.Condition {
	return apimeta.FindStatusCondition(in.Status.Conditions, kind)
}

// component is how one component of an install stands.
func component(in *appsv1.KsctlInstall, name string) appsv1.ComponentStatus {
	for _, c := range in.Status.Components {
		if c.Name == name {
			return c
		}
	}
	return appsv1.ComponentStatus{}
}

// absent is true when an object does not exist.
func absent(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return apierrors.IsNotFound(err)
}

func named(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

func aConfigMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(ns, name)}
}

func aDeployment(ns, name string) *k8sappsv1.Deployment {
	return &k8sappsv1.Deployment{ObjectMeta: named(ns, name)}
}

// says waits until an install's Ready condition is as wanted and its message
// has all of the texts.
func says(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string, texts ...string) {
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
	}, soon, 20*time.Millisecond).Should(BeEmpty(), "the install says %s/%s", status, reason)
}
