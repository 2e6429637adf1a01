package client_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	acmetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	acappsv1 "github.com/ksctl/gitops/api/client/applyconfiguration/apps/v1"
	"github.com/ksctl/gitops/api/client/informers/externalversions"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("The typed client", func() {
	It("creates, reads, updates, patches and deletes installs", func(ctx SpecContext) {
		installs := clientset.AppsV1().KsctlInstalls(namespace(ctx))
		desired := harness.NewInstall("", "web")
		desired.Labels = map[string]string{"team": "shop"}
		made, err := installs.Create(ctx, desired, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(made.UID).NotTo(BeEmpty())
		Expect(made.Status.ObservedGeneration).To(BeEquivalentTo(-1), "the CRD's default")

		list, err := installs.List(ctx, metav1.ListOptions{LabelSelector: "team=shop"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(ConsistOf(HaveField("Name", "web")))
		list, err = installs.List(ctx, metav1.ListOptions{LabelSelector: "team=other"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(BeEmpty())

		made.Spec.Suspend, made.Status.StackVersion = true, "1.0.0"
		updated, err := installs.Update(ctx, made, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(updated.Spec.Suspend).To(BeTrue())
		Expect(updated.Status.StackVersion).To(BeEmpty(), "status is a subresource")
		updated.Status.StackVersion = "1.0.0"
		updated, err = installs.UpdateStatus(ctx, updated, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(updated.Status.StackVersion).To(Equal("1.0.0"))

		patched, err := installs.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"suspend":null}}`),
			metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(patched.Spec.Suspend).To(BeFalse())
		_, err = installs.Update(ctx, made, metav1.UpdateOptions{})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)

		Expect(installs.Delete(ctx, "web", metav1.DeleteOptions{})).To(Succeed())
		_, err = installs.Get(ctx, "web", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "got %v", err)
	})

	It("uses the resource name of the CRD for each kind", func(ctx SpecContext) {
		apps, ns := clientset.AppsV1(), namespace(ctx)
		meta := metav1.ObjectMeta{Name: "one"}
		_, err := apps.KsctlRemoves(ns).
			Create(ctx, &appsv1.KsctlRemove{ObjectMeta: meta,
				Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "web"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = apps.KsctlSources(ns).
			Create(ctx, &appsv1.KsctlSource{ObjectMeta: meta,
				Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: "https://git.example.com/fleet.git"}}},
				metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = apps.KsctlInventories(ns).
			Create(ctx, &appsv1.KsctlInventory{ObjectMeta: meta,
				Owner: appsv1.InventoryOwner{Group: "apps.ksctl.com", Kind: "KsctlInstall", Name: "web"}},
				metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("An informer", func() {
	It("notifies of added, changed and deleted installs, and its lister returns them", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		factory := externalversions.NewSharedInformerFactoryWithOptions(clientset, 0,
			externalversions.WithNamespace(ns))
		informer := factory.Apps().V1().KsctlInstalls()
		events := make(chan string, 100)
		_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { events <- "added " + o.(*appsv1.KsctlInstall).Name },
			UpdateFunc: func(_, o any) {
				if o.(*appsv1.KsctlInstall).Spec.Suspend {
					events <- "suspended " + o.(*appsv1.KsctlInstall).Name
				}
			},
			DeleteFunc: func(o any) {
				key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
				if err != nil {
					key = err.Error()
				}
				events <- "deleted " + key
			},
		})
		Expect(err).NotTo(HaveOccurred())
		watching, stop := context.WithCancel(context.Background())
		factory.Start(watching.Done())
		DeferCleanup(func() {
			stop()
			factory.Shutdown()
		})
		Expect(cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced)).To(BeTrue())

		_, err = clientset.AppsV1().KsctlInstalls(other).Create(ctx, harness.NewInstall("", "elsewhere"),
			metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		in, err := clientset.AppsV1().KsctlInstalls(ns).
			Create(ctx, harness.NewInstall("", "web"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(events, waitTimeout).Should(Receive(Equal("added web")))
		cached, err := informer.Lister().KsctlInstalls(ns).Get("web")
		Expect(err).NotTo(HaveOccurred())
		Expect(cached.UID).To(Equal(in.UID))
		all, err := informer.Lister().List(labels.Everything())
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(ConsistOf(HaveField("Name", "web")))

		in.Spec.Suspend = true
		_, err = clientset.AppsV1().KsctlInstalls(ns).Update(ctx, in, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(events, waitTimeout).Should(Receive(Equal("suspended web")))
		Expect(clientset.AppsV1().KsctlInstalls(ns).Delete(ctx, "web", metav1.DeleteOptions{})).To(Succeed())
		Eventually(events, waitTimeout).Should(Receive(Equal("deleted " + ns + "/web")))
	})
})

var _ = Describe("An apply configuration", func() {
	It("sends only the fields that are set, and owns only those", func(ctx SpecContext) {
		ns := namespace(ctx)
		installs := clientset.AppsV1().KsctlInstalls(ns)
		desired := acappsv1.KsctlInstall("web", ns).WithLabels(map[string]string{"team": "shop"}).
			WithSpec(acappsv1.KsctlInstallSpec().WithPath("./stacks").WithStack("shop").
				WithInterval(metav1.Duration{Duration: 5 * time.Minute}).
				WithSourceRef(acappsv1.SourceRef().WithKind("GitRepository").WithName("fleet")).
				WithComponents(acappsv1.ComponentChoice().WithName("cache").WithEnabled(false)))
		bot := metav1.ApplyOptions{FieldManager: "bot"}
		in, err := installs.Apply(ctx, desired, bot)
		Expect(err).NotTo(HaveOccurred())
		Expect(in.Spec.Interval.Duration).To(Equal(5 * time.Minute))
		Expect(in.Spec.Components).To(HaveLen(1))
		Expect(in.ManagedFields).To(HaveLen(1))
		Expect(in.ManagedFields[0].FieldsV1.GetRawString()).
			To(And(ContainSubstring("f:stack"), Not(ContainSubstring("f:suspend")), Not(ContainSubstring("f:status"))))

		By("another field manager sets a new field, and conflicts on the bot's field")
		person := metav1.ApplyOptions{FieldManager: "person"}
		in, err = installs.Apply(ctx, acappsv1.KsctlInstall("web", ns).
			WithSpec(acappsv1.KsctlInstallSpec().WithSuspend(true)), person)
		Expect(err).NotTo(HaveOccurred())
		Expect(in.Spec.Suspend).To(BeTrue())
		Expect(in.Spec.Stack).To(Equal("shop"))
		_, err = installs.Apply(ctx, acappsv1.KsctlInstall("web", ns).
			WithSpec(acappsv1.KsctlInstallSpec().WithSuspend(true).WithStack("other")), person)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)

		By("the bot omits a field, which is removed, and the other manager's field stays")
		desired.Spec.Components = nil
		in, err = installs.Apply(ctx, desired, bot)
		Expect(err).NotTo(HaveOccurred())
		Expect(in.Spec.Components).To(BeEmpty())
		Expect(in.Spec.Suspend).To(BeTrue())
	})

	It("applies a status", func(ctx SpecContext) {
		ns := namespace(ctx)
		installs := clientset.AppsV1().KsctlInstalls(ns)
		_, err := installs.Create(ctx, harness.NewInstall("", "web"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		in, err := installs.ApplyStatus(ctx, acappsv1.KsctlInstall("web", ns).WithStatus(acappsv1.KsctlInstallStatus().
			WithObservedGeneration(1).
			WithConditions(acmetav1.Condition().WithType("Ready").WithStatus(metav1.ConditionTrue).
				WithReason("Succeeded").WithMessage("").WithLastTransitionTime(metav1.Now()))),
			metav1.ApplyOptions{FieldManager: "bot", Force: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(harness.ReadyCondition(in).Status).To(Equal(metav1.ConditionTrue))
	})
})
