package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// statusToken is the token that the server accepts. It rejects wrongStatusToken.
var (
	statusToken      = scanner.AddSecret("token-of-commit-statuses")
	wrongStatusToken = scanner.AddSecret("no-token-of-commit-statuses")
)

// gitea implements commit statuses like Gitea
// (https://docs.gitea.com/api/#tag/repository/operation/repoCreateStatus).
type gitea struct {
	mu         sync.Mutex
	statuses   map[string][]string // "context: state description" by commit, in order
	unexpected []string            // other requests
}

func (g *gitea) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	commit, ok := strings.CutPrefix(r.URL.Path, "/api/v1/repos/platform/fleet/statuses/")
	var body struct{ State, Context, Description string }
	err := json.NewDecoder(r.Body).Decode(&body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "token "+statusToken:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"message":"user does not exist, or knows no %s"}`, r.Header.Get("Authorization"))
	case !ok || err != nil || r.Method != http.MethodPost || !strings.HasPrefix(body.Context, "ksctlinstall/"):
		g.unexpected = append(g.unexpected, fmt.Sprint(r.Method, r.URL, body, err))
		w.WriteHeader(http.StatusNotFound)
	default:
		g.statuses[commit] = append(g.statuses[commit], body.Context+": "+body.State+" "+body.Description)
		w.WriteHeader(http.StatusCreated)
	}
}

// of returns the states of an install at a commit, in order of arrival, with their descriptions.
func (g *gitea) of(commit, context string) (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.statuses[commit] {
		if what, ok := strings.CutPrefix(s, context+": "); ok {
			out = append(out, what)
		}
	}
	return out
}

// states returns the states without their descriptions.
func (g *gitea) states(commit, context string) (out []string) {
	for _, s := range g.of(commit, context) {
		state, _, _ := strings.Cut(s, " ")
		out = append(out, state)
	}
	return out
}

// unexpectedRequests returns the requests that are not in Gitea's API.
func (g *gitea) unexpectedRequests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unexpected
}

// commitStatusFixture is a source that sets a status of an install on its commits.
type commitStatusFixture struct {
	server  *gitea
	repo    *gitserver.Repo
	src     *appsv1.KsctlSource
	in      *appsv1.KsctlInstall
	context string
}

func newCommitStatusFixture(ctx context.Context, ns string) *commitStatusFixture {
	GinkgoHelper()
	w := &commitStatusFixture{server: &gitea{statuses: map[string][]string{}}, context: "ksctlinstall/" + ns +
		"/i/here"}
	web := httptest.NewServer(w.server)
	DeferCleanup(web.Close)
	var err error
	w.repo, err = repo.NewRepo(ctx, ns+"/fleet")
	Expect(err).NotTo(HaveOccurred())
	hour := &metav1.Duration{Duration: time.Hour}
	w.src = &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet"},
		Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			Git: &appsv1.GitSource{URL: w.repo.URL()},
			CommitStatus: &appsv1.SourceCommitStatus{Type: appsv1.GiteaStatus, Address: web.URL + "/platform/fleet",
				Cluster:   "here",
				SecretRef: fluxmeta.LocalObjectReference{Name: "fleet-status"}}}}
	w.in = harness.NewInstall(ns, "i")
	w.in.Spec.SourceRef.Name = w.src.Name
	return w
}

// addDependency makes revisions from now on wait for a ConfigMap.
func (w *commitStatusFixture) addDependency(ctx context.Context, name string) {
	GinkgoHelper()
	patch(ctx, w.in, fmt.Sprintf(`{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":%q}]}}`, name))
	reports(ctx, w.in, metav1.ConditionTrue, "") // the applied revision stays ready
}

// satisfyDependency creates a ConfigMap that revisions wait for.
func (w *commitStatusFixture) satisfyDependency(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().
		Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.in.Namespace, Name: name}})).
		To(Succeed())
}

// deleteAll deletes the created objects, and waits until they are gone.
func (w *commitStatusFixture) deleteAll(ctx context.Context) {
	GinkgoHelper()
	for _, o := range []client.Object{w.in, w.src} {
		Expect(client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, o))).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
		}, soon).
			Should(MatchError(ContainSubstring("not found")), "%s is deleted", o.GetName())
	}
}

// commit commits a tree and requests a reconcile of the source.
func (w *commitStatusFixture) commit(ctx context.Context, tree map[string]string) string {
	GinkgoHelper()
	id, err := w.repo.Commit(ctx, tree, "change")
	Expect(err).NotTo(HaveOccurred())
	requestReconcile(ctx, w.src, id)
	return id
}

// awaitStates waits until a commit has exactly these states of the install.
func (w *commitStatusFixture) awaitStates(ctx context.Context, commit string, states ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []string { return w.server.states(commit, w.context) }, soon).Should(Equal(states))
}

// events returns the messages of the source's events of a reason.
func (w *commitStatusFixture) events(ctx context.Context, reason string) (out []string, err error) {
	var all corev1.EventList
	err = h.ControlPlane.Client().List(ctx, &all, client.InNamespace(w.src.Namespace))
	for _, e := range all.Items {
		if e.InvolvedObject.UID == w.src.UID && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out, err
}

var _ = Describe("A KsctlSource with a commit status", func() {
	It("sets each state of a commit once, and reports an invalid token", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "commitstatus")
		c := framework.StartController(h)
		w := newCommitStatusFixture(ctx, ns)
		first, err := w.repo.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())

		By("an invalid token")
		out, err := runScript(ctx, "token="+wrongStatusToken+"\n"+docCommands("commit-status.md")["Set it up"], ns, "")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(h.ControlPlane.Client().Create(ctx, w.src)).To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, w.in)).To(Succeed())
		Eventually(ctx, w.events, soon).WithArguments(ctx, "CommitStatusFailed").Should(
			ContainElement(And(ContainSubstring("the Secret "+ns+"/fleet-status"), ContainSubstring("401"),
				ContainSubstring("write:repository"))))
		Expect(runScript(ctx, docCommands("commit-status.md")["When nothing arrives"], ns, "")).
			To(ContainSubstring("CommitStatusFailed"))
		reports(ctx, w.in, metav1.ConditionTrue, first)
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)).To(Succeed())
		Expect(apimeta.IsStatusConditionTrue(w.src.Status.Conditions, "Ready")).To(BeTrue(), "the source stays ready")

		By("a valid token")
		patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-status"}},
			fmt.Sprintf(`{"stringData":{"token":%q}}`, statusToken))
		w.awaitStates(ctx, first, "success")
		Expect(w.server.of(first, w.context)).To(ConsistOf(ContainSubstring("Applied revision main@sha1:" + first)))

		By("a commit that waits for a dependency")
		w.addDependency(ctx, "second")
		second := w.commit(ctx, stack("2"))
		w.awaitStates(ctx, second, "pending")
		w.satisfyDependency(ctx, "second")
		w.awaitStates(ctx, second, "pending", "success")

		By("reconciles without a change")
		for i := range 3 {
			token := fmt.Sprint("again ", i)
			requestReconcile(ctx, w.src, token)
			requestReconcile(ctx, w.in, token)
			Eventually(ctx, func() ([]string, error) {
				err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)
				return []string{w.src.Status.LastHandledReconcileAt, w.in.Status.LastHandledReconcileAt},
					errorsOf(err, h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.in), w.in))
			}, soon).Should(HaveEach(token))
		}

		By("an invalid commit")
		wrong := stack("3")
		wrong["stacks/app/stack.yaml"] += "  colour: blue\n"
		third := w.commit(ctx, wrong)
		Eventually(ctx, func() []string { return w.server.of(third, w.context) }, soon).Should(
			ContainElement(And(HavePrefix("failure "), ContainSubstring("stack.yaml"), ContainSubstring("colour"))))

		By("a valid commit, and a restart")
		fourth := w.commit(ctx, stack("4"))
		Eventually(ctx, func() []string {
			return w.server.states(fourth, w.context)
		}, soon).Should(ContainElement("success"))
		before := len(w.server.states(fourth, w.context))
		Expect(c.Stop()).To(Succeed())
		c.Start()
		Eventually(ctx, func() int {
			return len(w.server.states(fourth, w.context))
		}, soon).Should(BeNumerically(">", before), "a start sets the state once more")
		w.addDependency(ctx, "last")
		last := w.commit(ctx, stack("5"))
		w.awaitStates(ctx, last, "pending")
		w.satisfyDependency(ctx, "last")
		w.awaitStates(ctx, last, "pending", "success")

		Expect(w.server.states(first, w.context)).To(HaveExactElements("success"))
		Expect(w.server.states(second, w.context)).
			To(HaveExactElements("pending", "success"), "a reconcile without a change sets no status")
		Expect(w.server.unexpectedRequests()).To(BeEmpty())
		w.deleteAll(ctx)
	})

	It("sets state error on a commit that is superseded before it is ready, or whose install is "+
		"deleted", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "commitstatus")
		framework.StartController(h)
		w := newCommitStatusFixture(ctx, ns)
		first, err := w.repo.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "fleet-status"},
			StringData: map[string]string{"token": statusToken}})).To(Succeed())
		w.in.Spec.DependsOn = []appsv1.Dependency{{APIVersion: "v1", Kind: "ConfigMap", Name: "never"}}
		Expect(h.ControlPlane.Client().Create(ctx, w.src)).To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, w.in)).To(Succeed())
		w.awaitStates(ctx, first, "pending")
		second := w.commit(ctx, stack("2"))
		w.awaitStates(ctx, first, "pending", "error")
		w.awaitStates(ctx, second, "pending")
		Expect(h.ControlPlane.Client().Delete(ctx, w.in)).To(Succeed())
		w.awaitStates(ctx, second, "pending", "error")
		w.deleteAll(ctx)
	})
})
