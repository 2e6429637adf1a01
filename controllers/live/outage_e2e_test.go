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

// watchError is what a watch of ConfigMaps from a resource version begins with,
// if that is an error.
func watchError(ctx context.Context, namespace, rv string) *metav1.Status {
	w, err := resource(configMaps, namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: rv, TimeoutSeconds: ptr.To(int64(10))})
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

	// begin starts an index that knows three ConfigMaps.
	begin := func(ctx context.Context, o live.Options) (*live.Index, *recorder, *wire) {
		GinkgoHelper()
		cfg, w := through(plane.Config())
		o.Owner = installation(namespace)
		for _, n := range []string{"a", "b", "c"} {
			apply(ctx, configMaps, marked(namespace, configMap(n, "1")))
		}
		ix, told := run(cfg, o)
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		synced(ix, configMaps)
		Eventually(w.open).Should(Equal(1), "the watch is on")
		return ix, told, w
	}

	// while breaks the wire, lets things change, mends it, and waits until the index knows.
	whileBroken := func(ctx context.Context, ix *live.Index, w *wire, breakIt func()) {
		GinkgoHelper()
		w.setRefuse(anyRequest)
		breakIt()
		a := patch(ctx, configMaps, namespace, "a", "data: {key: other}")
		Expect(resource(configMaps, namespace).Delete(ctx, "b", metav1.DeleteOptions{})).To(Succeed())
		c := patch(ctx, configMaps, namespace, "c", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		d := apply(ctx, configMaps, marked(namespace, configMap("d", "1")))
		w.setRefuse(nil)
		Eventually(known(ix, refOf(a))).Should(HaveField("ResourceVersion", a.GetResourceVersion()), "the change is known")
		Eventually(has(ix, refOf(marked(namespace, configMap("b", ""))))).Should(BeFalse(), "the deletion is known")
		Eventually(known(ix, refOf(c))).Should(HaveField("LabelLost", true), "the lost label is known")
		Eventually(has(ix, refOf(d))).Should(BeTrue(), "the new object is known")
	}

	isList := func(r *http.Request) bool { return !isWatch(r) && !isGet(r) }

	for _, half := range []bool{false, true} {
		It(fmt.Sprintf("goes on from where it was when the connection is cut, in mid-event: %v", half), func(ctx SpecContext) {
			ix, _, w := begin(ctx, live.Options{})
			whileBroken(ctx, ix, w, func() { w.cut(half) })
			Expect(w.count(isList)).To(Equal(1), "what was missed came with the watch")
		})
	}

	It("lists anew when a restarted API server does not have the history", Serial, func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		whileBroken(ctx, ix, w, func() {
			w.cut(false)
			// Its cache will begin after this one.
			old := patch(ctx, configMaps, namespace, "c", "data: {key: other}").GetResourceVersion()
			patch(ctx, configMaps, namespace, "c", "data: {key: another}")
			Expect(plane.KillAPIServer()).To(Succeed())
			Expect(plane.StartAPIServer(ctx)).To(Succeed())
			Eventually(watchError).WithArguments(ctx, namespace, old).Should(HaveField("Code", BeEquivalentTo(http.StatusGone)), "etcd compacts its history")
		})
		Expect(w.count(isList)).To(BeNumerically(">=", 2))
		stats := ix.Stats()
		Expect(stats.Lists).To(BeNumerically(">=", 2))
		// More than one list may be needed while the API server's cache fills; the one
		// without the label is asked for again each time, and so is one that was not answered.
		Expect(stats.Confirms).To(And(BeNumerically(">=", 2), BeNumerically("<=", 2*stats.Lists)), "what a list did not have was asked for")
	})

	It("lists anew when a watch says that it is expired", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		whileBroken(ctx, ix, w, func() { w.inject(`{"type":"ERROR","object":` + expiredStatus + `}`) })
		Expect(w.count(isList)).To(BeNumerically(">=", 2))
	})

	It("lists in one when the continuation of a list expired", func(ctx SpecContext) {
		cfg, w := through(plane.Config())
		for _, n := range []string{"a", "b", "c"} {
			apply(ctx, configMaps, marked(namespace, configMap(n, "1")))
		}
		continued := func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }
		w.setRespond(func(r *http.Request) *http.Response {
			if continued(r) && w.count(continued) == 1 {
				return expired(r)
			}
			return nil
		})
		ix, _ := run(cfg, live.Options{Owner: installation(namespace), PageSize: 1})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		synced(ix, configMaps)
		Expect(ix.Stats()).To(And(HaveField("Objects", 3), HaveField("Lists", BeEquivalentTo(1))))
		Expect(w.count(isList)).To(Equal(3), "a page, the next that failed, and all at once")
	})

	It("says so when it can't tell, and goes on when it can", func(ctx SpecContext) {
		ix, told, w := begin(ctx, live.Options{StaleAfter: 50 * time.Millisecond})
		n := told.count(owner)
		w.setRefuse(anyRequest)
		w.cut(false)
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the watch is broken for too long")
		Eventually(func() error { return ix.Synced(configMaps.GroupVersionKind.GroupKind()) }).Should(MatchError(errRefused), "and says why")
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was told")
		Expect(has(ix, refOf(marked(namespace, configMap("a", ""))))()).To(BeTrue(), "what was known stays")
		n = told.count(owner)
		w.setRefuse(nil)
		synced(ix, configMaps)
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was told again")
	})

	It("tries again at once when it is woken", func(ctx SpecContext) {
		cfg, w := through(plane.Config())
		w.setRefuse(anyRequest)
		ix, _ := run(cfg, live.Options{Owner: installation(namespace), MinBackoff: time.Hour, MaxBackoff: time.Hour})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		Eventually(func() error { return ix.Synced(configMaps.GroupVersionKind.GroupKind()) }).Should(MatchError(errRefused), "the list failed")
		Expect(reason(ix, configMaps)()).To(Equal(live.Syncing))
		w.setRefuse(nil)
		ix.Wake(configMaps.GroupVersionKind.GroupKind())
		synced(ix, configMaps)
	})

	It("does not trust a deletion that it can't confirm", func(ctx SpecContext) {
		ix, told, w := begin(ctx, live.Options{})
		a := refOf(marked(namespace, configMap("a", "")))
		w.setRefuse(isGet)
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		Expect(has(ix, a)()).To(BeTrue())
		n := told.count(owner)
		w.setRefuse(nil)
		ix.Wake(configMaps.GroupVersionKind.GroupKind())
		Eventually(has(ix, a)).Should(BeFalse(), "the deletion is confirmed")
		synced(ix, configMaps)
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was told")
	})

	It("needs no confirmation for an object that shows up again", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		w.setRefuse(isGet)
		a := patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": "+installation(namespace)+"}}")
		synced(ix, configMaps)
		Expect(known(ix, refOf(a))()).To(And(HaveField("UID", a.GetUID()), HaveField("LabelLost", false)))
	})

	It("takes an object of the same name for another one when it can confirm", func(ctx SpecContext) {
		ix, _, w := begin(ctx, live.Options{})
		a := refOf(marked(namespace, configMap("a", "")))
		w.setRefuse(isGet)
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the GET failed")
		theirs := configMap("a", "theirs")
		theirs.SetNamespace(namespace)
		applyAs(ctx, "other", configMaps, theirs)
		w.setRefuse(nil)
		Eventually(has(ix, a)).Should(BeFalse(), "theirs is not ours")
		synced(ix, configMaps)
	})
})
