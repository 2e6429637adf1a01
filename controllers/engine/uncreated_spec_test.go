package engine_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// lateTransport holds back the request that creates the ConfigMap late, like a load balancer in
// front of the API server: the client gets no answer, and the API server gets the request when it
// is sent.
type lateTransport struct {
	rest http.RoundTripper
	send chan struct{}
	wg   sync.WaitGroup
}

func (t *lateTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/configmaps/late") {
		return t.rest.RoundTrip(r)
	}
	detached := r.Clone(context.WithoutCancel(r.Context()))
	t.wg.Go(func() {
		<-t.send
		if res, err := t.rest.RoundTrip(detached); err == nil {
			_ = res.Body.Close()
		}
	})
	return nil, errors.New("the connection was lost")
}

var _ = Describe("An object that was perhaps not created", suite.Safety, func() {
	// edit returns a client of a service account that may edit the namespace.
	edit := func(ctx context.Context, ns string) *engine.Client {
		GinkgoHelper()
		Expect(controlPlane.Client().Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "edit"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "deployer"}}})).To(Succeed())
		cfg := rest.CopyConfig(controlPlane.Config())
		cfg.Impersonate.UserName = "system:serviceaccount:" + ns + ":deployer"
		c, err := engine.NewClient(cfg)
		Expect(err).NotTo(HaveOccurred())
		return c
	}
	reconcile := func(ctx context.Context, p *process, o *owner,
		components ...stacks.RenderedComponent) *engine.Report {
		GinkgoHelper()
		rep, err := p.engine.Reconcile(ctx, p.pass(o), engine.Prepare(ctx, components, o.policies, p.target.Discovery))
		Expect(err).NotTo(HaveOccurred())
		return rep
	}

	It("does not block what follows if its create was forbidden", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p := startProcess(ns, engine.Options{RequestTimeout: time.Hour})
		p.client = edit(ctx, ns)
		o := newOwner(ctx, ns, "o")
		role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + ns + "}\nrules: []\n"
		Eventually(func() []error {
			return reconcile(ctx, p, o, render("c", configMap(ns, "a", "1"), role)).Errors
		}, shortRetry, 20*time.Millisecond).Should(ContainElement(MatchError(ContainSubstring("is forbidden"))),
			"the role binding is in effect, and does not allow cluster roles")
		Expect(o.inv.Len()).To(Equal(2), "the entry is recorded before the create")
		p.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("c", configMap(ns, "a", "1"))})
		Expect(o.inv.Len()).To(Equal(1), "the reverted commit forgets the entry")

		reconcile(ctx, p, o, render("c", configMap(ns, "a", "1"), role))
		Expect(o.inv.Len()).To(Equal(2))
		p.teardown(ctx, o)
	})

	It("is waited for until the API server certainly dropped an unanswered create", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		late := &lateTransport{send: make(chan struct{})}
		cfg := rest.CopyConfig(controlPlane.Config())
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { late.rest = rt; return late })
		first := startProcess(ns, engine.Options{})
		var err error
		first.client, err = engine.NewClient(cfg)
		Expect(err).NotTo(HaveOccurred())
		o := newOwner(ctx, ns, "o")
		Eventually(func() []error {
			rep := reconcile(ctx, first, o, render("c", configMap(ns, "late", "1")))
			return rep.Errors
		}, shortRetry, 20*time.Millisecond).
			Should(ContainElement(MatchError(ContainSubstring("the connection was lost"))))
		first.stop()

		second := startProcess(ns, engine.Options{RequestTimeout: 3 * time.Second})
		o = loadOwner(ctx, ns, "o")
		rep, err := second.engine.Teardown(ctx, second.pass(o))
		Expect(err).NotTo(HaveOccurred())
		Expect(o.inv.Len()).To(Equal(1))
		Expect(rep.Plan.Waits).
			To(ContainElement(HaveField("Message", ContainSubstring("ConfigMap "+ns+"/late may still be created"))))
		Expect(rep.RetryAt).To(BeTemporally("~", time.Now().Add(3*time.Second), 2*time.Second))
		close(late.send)
		late.wg.Wait()
		Expect(labeledConfigMaps(ctx, ns)).
			To(HaveLen(1), "the API server created the object after the process had ended")
		second.teardown(ctx, o)
		Expect(labeledConfigMaps(ctx, ns)).To(BeEmpty())
	})

	It("is forgotten by a new process if no such object exists", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		o := newOwner(ctx, ns, "o")
		intended := appsv1.InventoryEntry{ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "never"}.ID(),
			Version: "v1", Component: "c", State: appsv1.EntryIntended}
		o.inv.Put(intended)
		Expect(o.Persist(ctx)).To(Succeed())
		p := startProcess(ns, engine.Options{RequestTimeout: 500 * time.Millisecond})
		o = loadOwner(ctx, ns, "o")
		o.policies.HandoverTo = func(string) plan.HandoverDecision {
			return plan.HandoverDecision{To: &plan.OwnerKey{Kind: "KsctlInstall", Name: "x"}}
		}
		p.teardown(ctx, o)
	})

	It("is checked with the rights of the account if the controller may not list its kind", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p := startProcess(ns, engine.Options{})
		nobody := rest.CopyConfig(controlPlane.Config())
		nobody.Impersonate.UserName = "nobody"
		p.target.ClientFor = func(*types.NamespacedName) (*engine.Client, error) { return engine.NewClient(nobody) }
		o := newOwner(ctx, ns, "o")
		intended := appsv1.InventoryEntry{ID: stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "never"}.ID(),
			Version: "v1", Component: "c", State: appsv1.EntryIntended}
		o.inv.Put(intended)
		account := p.client
		p.client, _ = engine.NewClient(nobody)
		Eventually(func() []plan.Action {
			rep, err := p.engine.Teardown(ctx, p.pass(o))
			Expect(err).NotTo(HaveOccurred())
			return rep.Plan.Waits
		}, shortRetry, 20*time.Millisecond).
			Should(ContainElement(HaveField("Message",
				ContainSubstring("neither the controller may list configmaps nor the service account may get it"))))
		p.client = account
		p.teardown(ctx, o)
	})

	It("is invalid, and not recorded, if no API server can have it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p := startProcess(ns, engine.Options{})
		o := newOwner(ctx, ns, "o")
		review := "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nmetadata: {name: x}\nspec: {}\n"
		token := "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: x}\nspec: {}\n"
		binding := "apiVersion: v1\nkind: Binding\nmetadata: {name: x, namespace: " + ns + "}\ntarget: {name: x}\n"
		eviction := "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: x, namespace: " + ns + "}\n"
		var rep *engine.Report
		Eventually(func() any {
			rep = reconcile(ctx, p, o,
				render("c", configMap(ns, "a", "1"), configMap(ns, "b/c", "1"), review, token, binding, eviction))
			return labeledConfigMaps(ctx, ns)
		}, shortRetry, 20*time.Millisecond).Should(HaveLen(1), "the rest is applied, once the index is synced")
		var refused []string
		for _, w := range rep.Plan.Waits {
			if w.Verb == plan.VerbRefuse && w.Reason == plan.ReasonInvalid {
				refused = append(refused, w.Message)
			}
		}
		Expect(refused).To(ConsistOf(
			ContainSubstring("metadata.name may not contain '/'"),
			ContainSubstring("does not serve get, list, watch, delete for SelfSubjectAccessReview"),
			ContainSubstring("for TokenReview"), ContainSubstring("for Binding"),
			ContainSubstring("the cluster serves no kind Eviction")))
		Expect(o.inv.Len()).To(Equal(1), "only the ConfigMap is recorded")

		// The API server decides about a name that only some kinds allow.
		rep = reconcile(ctx, p, o, render("c", configMap(ns, "a", "1"), configMap(ns, "Upper", "1")))
		var invalid *plan.InvalidObjectError
		Expect(errors.As(errors.Join(rep.Errors...), &invalid)).To(BeTrue(), "errors: %v", rep.Errors)
		p.reconcileUntilReady(ctx, o, []stacks.RenderedComponent{render("c", configMap(ns, "a", "1"))})
		Expect(o.inv.Len()).To(Equal(1))
		p.teardown(ctx, o)
	})

	It("is not created again at once after it was created and deleted five times", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		p := startProcess(ns, engine.Options{})
		o := newOwner(ctx, ns, "o")
		with, without := []stacks.RenderedComponent{render("c", configMap(ns, "a", "1"), configMap(ns, "b", "1"))},
			[]stacks.RenderedComponent{render("c", configMap(ns, "a", "1"))}
		for range 6 { // the first creation is no repetition
			p.reconcileUntilReady(ctx, o, with)
			p.reconcileUntilReady(ctx, o, without)
		}
		Expect(labeledConfigMaps(ctx, ns)).To(HaveLen(1), "deletes are not delayed")
		rep := reconcile(ctx, p, o, with...)
		Expect(rep.Errors).
			To(ConsistOf(MatchError(ContainSubstring("ConfigMap " + ns + "/b was created and deleted 5 times"))))
		Expect(rep.RetryAt).To(BeTemporally("~", time.Now().Add(retry.ContestedInterval), time.Minute))
		p.reconcileUntilReady(ctx, o,
			[]stacks.RenderedComponent{render("c", configMap(ns, "a", "1"), configMap(ns, "b", "2"))})
		p.engine.ResetRecreations(o.Key())
		p.teardown(ctx, o)
	})
})
