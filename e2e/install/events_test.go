package install_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/internal/manager"
)

var _ = Describe("Events", func() {
	It("reach the API server and a receiver in the format of Flux, and a receiver that hangs blocks "+
		"nothing", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		open, received := make(chan struct{}), make(chan eventv1.Event, 100)
		var attempts atomic.Int32
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			attempts.Add(1)
			select {
			case <-open:
			case <-r.Context().Done():
				return // the sender has timed out
			}
			var e eventv1.Event
			d := json.NewDecoder(r.Body)
			d.DisallowUnknownFields()
			Expect(d.Decode(&e)).To(Succeed())
			received <- e
		}))
		DeferCleanup(receiver.Close)
		letIn := sync.OnceFunc(func() { close(open) })
		DeferCleanup(letIn) // otherwise Close waits for blocked requests
		sourceForController(ctx, ns, "src", "events")
		startController(dedicated("events"), func(o *manager.Options) { o.Concurrent, o.EventsAddr = 1, receiver.URL })

		publish(ctx, ns, "src", "main@sha1:1",
			harness.SourceTree(components("web"), map[string]string{"web/a.yaml": configMap("a", "1")}))
		mine := func(in *appsv1.KsctlInstall) {
			in.Annotations = map[string]string{eventv1.Group + "/branch": "main", "other": "x"}
		}
		first := newInstall(ctx, ns, "first", forController[*appsv1.KsctlInstall]("events"), hourly, mine)
		second := newInstall(ctx, ns, "second", forController[*appsv1.KsctlInstall]("events"), hourly, mine,
			func(in *appsv1.KsctlInstall) { in.Spec.TargetNamespace = namespaceFor(ctx) })
		atRevision(ctx, first, "main@sha1:1")
		atRevision(ctx, second, "main@sha1:1")
		Expect(attempts.Load()).
			To(BeNumerically("<", 5),
				"the first event has not timed out yet (which takes half a minute), and there is one worker")
		Eventually(ctx, func() ([]corev1.Event, error) {
			var list corev1.EventList
			err := plane.Client().
				List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"involvedObject.name": "second"})
			return list.Items, err
		}, soon).Should(ContainElement(HaveField("Reason", "ReconciliationSucceeded")), "the API server has the event")

		letIn()
		var e eventv1.Event
		for e.InvolvedObject.Name != "second" || e.Reason != "ReconciliationSucceeded" {
			Eventually(ctx, received, soon).Should(Receive(&e), "the receiver gets the events in order")
		}
		Expect(e.InvolvedObject).
			To(And(HaveField("Kind", "KsctlInstall"), HaveField("APIVersion", "apps.ksctl.com/v1"),
				HaveField("Namespace", ns), HaveField("UID", second.UID)))
		Expect(e.Severity).To(Equal(eventv1.EventSeverityInfo))
		Expect(e.ReportingController).To(Equal("ksctl-gitops"))
		Expect(e.Metadata).
			To(Equal(map[string]string{"apps.ksctl.com/revision": "main@sha1:1", eventv1.Group + "/branch": "main"}))
		Expect(e.Message).NotTo(BeEmpty())
		Expect(e.Timestamp.IsZero()).To(BeFalse())
	})
})
