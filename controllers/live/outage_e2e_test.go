package live_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ksctl/gitops/controllers/live"
)

// watchError returns the error with which a watch of ConfigMaps from a resource version starts; nil
// if it starts without one.
func watchError(ctx context.Context, namespace, rv string) *metav1.Status {
	w, err := resource(configMaps, namespace).
		Watch(ctx, metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: ptr.To(int64(10))})
	if err != nil {
		s := apierrors.APIStatus(nil)
		if errors.As(err, &s) {
			return ptr.To(s.Status())
		}
		return nil
	}
	defer w.Stop()
	e := <-w.ResultChan()
	s, _ := e.Object.(*metav1.Status)
	return s
}

var _ = Describe("An index whose watch breaks", func() {
	var namespace, owner string

	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = plane.Namespace(ctx, "outage")
		Expect(err).NotTo(HaveOccurred())
		owner = ownerKey(namespace)
	})

	anyRequest := func(*http.Request) bool { return true }

	// begin starts an index with three ConfigMaps.
	begin := func(ctx context.Context, o live.Options) (*live.Index, *recorder, *faultProxy) {
		GinkgoHelper()
		cfg, w := withFaultProxy(plane.Config())
		o.OwnerID = installation(namespace)
		for _, n := range []string{"a", "b", "c"} {
			apply(ctx, configMaps, marked(namespace, configMap(n, "1")))
		}
		ix, notified := startIndex(cfg, o)
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		expectSynced(ix, configMaps)
		Eventually(w.openWatches).Should(Equal(1), "the watch is open")
		return ix, notified, w
	}

	// whileBroken breaks the connection, changes objects, restores the connection, and waits until
	// the index has all changes.
	whileBroken := func(ctx context.Context, ix *live.Index, w *faultProxy, breakIt func()) {
		GinkgoHelper()
		w.setFailure(anyRequest)
		breakIt()
		a := patch(ctx, configMaps, namespace, "a", "data: {key: other}")
		Expect(resource(configMaps, namespace).Delete(ctx, "b", metav1.DeleteOptions{})).To(Succeed())
		c := patch(ctx, configMaps, namespace, "c", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		d := apply(ctx, configMaps, marked(namespace, configMap("d", "1")))
		w.setFailure(nil)
		Eventually(getObject(ix, refOf(a))).Should(HaveField("ResourceVersion", a.GetResourceVersion()),
			"the change is indexed")
		Eventually(has(ix, refOf(marked(namespace, configMap("b", ""))))).
			Should(BeFalse(), "the deleted object is removed")
		Eventually(getObject(ix, refOf(c))).Should(HaveField("LabelLost", true), "the lost label is indexed")
		Eventually(has(ix, refOf(d))).Should(BeTrue(), "the new object is indexed")
	}

	isList := func(r *http.Request) bool { return !isWatch(r) && !isGet(r) }

	for _, half := range []bool{false, true} {
		It(fmt.Sprintf("resumes from its resource version after a cut connection, in mid-event: %v",
			half), func(ctx SpecContext) {
			ix, _, w := begin(ctx, live.Options{})
			whileBroken(ctx, ix, w, func() { w.cutWatches(half) })
			Expect(w.count(isList)).To(Equal(1), "the resumed watch delivers the missed events, without a list")
		})
	}

	It("relists when a restarted API server no longer has the history", Serial, func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		whileBroken(ctx, ix, w, func() {
			w.cutWatches(false)
			// The watch cache of the restarted API server starts after this version.
			old := patch(ctx, configMaps, namespace, "c", "data: {key: other}").GetResourceVersion()
			patch(ctx, configMaps, namespace, "c", "data: {key: another}")
			Expect(plane.KillAPIServer()).To(Succeed())
			Expect(plane.StartAPIServer(ctx)).To(Succeed())
			Eventually(watchError).WithArguments(ctx, namespace, old).
				Should(HaveField("Code", BeEquivalentTo(http.StatusGone)), "etcd compacts its history")
		})
		Expect(w.count(isList)).To(BeNumerically(">=", 2))
		stats := ix.Stats()
		Expect(stats.Lists).To(BeNumerically(">=", 2))
		// More than one list may be necessary while the watch cache of the API server fills.
		// After each list, the index gets the object without the label again, and any object
		// whose GET failed.
		Expect(stats.Confirms).To(And(BeNumerically(">=", 2), BeNumerically("<=", 2*stats.Lists)),
			"a GET for each object that a list did not contain")
	})

	It("relists after an Expired error in a watch", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		whileBroken(ctx, ix, w, func() { w.inject(`{"type":"ERROR","object":` + expiredStatus + `}`) })
		Expect(w.count(isList)).To(BeNumerically(">=", 2))
	})

	It("lists without pages when a continue token expired", func(ctx SpecContext) {
		cfg, w := withFaultProxy(plane.Config())
		for _, n := range []string{"a", "b", "c"} {
			apply(ctx, configMaps, marked(namespace, configMap(n, "1")))
		}
		continued := func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }
		w.setResponse(func(r *http.Request) *http.Response {
			if continued(r) && w.count(continued) == 1 {
				return expired(r)
			}
			return nil
		})
		ix, _ := startIndex(cfg, live.Options{OwnerID: installation(namespace), PageSize: 1})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		expectSynced(ix, configMaps)
		Expect(ix.Stats()).To(And(HaveField("Objects", 3), HaveField("Lists", BeEquivalentTo(1))))
		Expect(w.count(isList)).To(Equal(3), "the first page, the failed second page, and one list without pages")
	})

	It("reports Stale with the error while the watch is broken, and recovers", func(ctx SpecContext) {
		ix, notified, w := begin(ctx, live.Options{StaleAfter: 50 * time.Millisecond})
		n := notified.count(owner)
		w.setFailure(anyRequest)
		w.cutWatches(false)
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the watch is broken for longer than StaleAfter")
		Eventually(func() error {
			return ix.Synced(configMaps.GroupVersionKind.GroupKind())
		}).Should(MatchError(errInjected), "with the cause")
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was notified")
		Expect(has(ix, refOf(marked(namespace, configMap("a", ""))))()).To(BeTrue(), "stored objects stay")
		n = notified.count(owner)
		w.setFailure(nil)
		expectSynced(ix, configMaps)
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was notified again")
	})

	It("retries immediately after Wake", func(ctx SpecContext) {
		cfg, w := withFaultProxy(plane.Config())
		w.setFailure(anyRequest)
		ix, _ := startIndex(cfg,
			live.Options{OwnerID: installation(namespace), MinBackoff: time.Hour, MaxBackoff: time.Hour})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		Eventually(func() error {
			return ix.Synced(configMaps.GroupVersionKind.GroupKind())
		}).Should(MatchError(errInjected), "the list failed")
		Expect(reason(ix, configMaps)()).To(Equal(live.Syncing))
		w.setFailure(nil)
		ix.Wake(configMaps.GroupVersionKind.GroupKind())
		expectSynced(ix, configMaps)
	})

	It("keeps a deleted object until a GET confirms the deletion", func(ctx SpecContext) {
		ix, notified, w := begin(ctx, live.Options{})
		a := refOf(marked(namespace, configMap("a", "")))
		w.setFailure(isGet)
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		Expect(has(ix, a)()).To(BeTrue())
		n := notified.count(owner)
		w.setFailure(nil)
		ix.Wake(configMaps.GroupVersionKind.GroupKind())
		Eventually(has(ix, a)).Should(BeFalse(), "the deletion is confirmed")
		expectSynced(ix, configMaps)
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was notified")
	})

	It("needs no confirmation when the object gets its label back", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		w.setFailure(isGet)
		a := patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": "+installation(namespace)+"}}")
		expectSynced(ix, configMaps)
		Expect(getObject(ix, refOf(a))()).To(And(HaveField("UID", a.GetUID()), HaveField("LabelLost", false)))
	})

	It("removes a replaced object once a GET confirms the replacement", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		a := refOf(marked(namespace, configMap("a", "")))
		w.setFailure(isGet)
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		theirs := configMap("a", "theirs")
		theirs.SetNamespace(namespace)
		applyAs(ctx, "other", configMaps, theirs)
		w.setFailure(nil)
		Eventually(has(ix, a)).Should(BeFalse(), "the object of the other manager is not indexed")
		expectSynced(ix, configMaps)
	})
})
