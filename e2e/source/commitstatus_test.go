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
	"github.com/ksctl/gitops/e2e/harness"
)

// Of commit statuses: what the server takes, and what it does not.
var (
	statusToken      = heard.Secret("token-of-commit-statuses")
	wrongStatusToken = heard.Secret("no-token-of-commit-statuses")
)

// gitea takes commit statuses as Gitea does
// (https://docs.gitea.com/api/#tag/repository/operation/repoCreateStatus).
type gitea struct {
	mu  sync.Mutex
	got map[string][]string // "state description" of a commit, in order
	odd []string            // requests that are none of these
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
		g.odd = append(g.odd, fmt.Sprint(r.Method, r.URL, body, err))
		w.WriteHeader(http.StatusNotFound)
	default:
		g.got[commit] = append(g.got[commit], body.Context+": "+body.State+" "+body.Description)
		w.WriteHeader(http.StatusCreated)
	}
}

// of are the states of an install at a commit, in the order in which they came, with
// their descriptions.
func (g *gitea) of(commit, context string) (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.got[commit] {
		if what, ok := strings.CutPrefix(s, context+": "); ok {
			out = append(out, what)
		}
	}
	return out
}

// states are the first words of those.
func (g *gitea) states(commit, context string) (out []string) {
	for _, s := range g.of(commit, context) {
		state, _, _ := strings.Cut(s, " ")
		out = append(out, state)
	}
	return out
}

// strangers are requests that no Gitea knows.
func (g *gitea) strangers() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.odd
}

// followed is a source whose commits are told how an install stands.
type followed struct {
	server  *gitea
	repo    *gitserver.Repo
	src     *appsv1.KsctlSource
	in      *appsv1.KsctlInstall
	context string
}

func newFollowed(ctx context.Context, ns string) *followed {
	GinkgoHelper()
	w := &followed{server: &gitea{got: map[string][]string{}}, context: "ksctlinstall/" + ns + "/i/here"}
	web := httptest.NewServer(w.server)
	DeferCleanup(web.Close)
	var err error
	w.repo, err = repo.NewRepo(ctx, ns+"/fleet")
	Expect(err).NotTo(HaveOccurred())
	hour := &metav1.Duration{Duration: time.Hour}
	w.src = &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet"},
		Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour}, Git: &appsv1.GitSource{URL: w.repo.URL()},
			CommitStatus: &appsv1.SourceCommitStatus{Type: appsv1.GiteaStatus, Address: web.URL + "/platform/fleet", Cluster: "here",
				SecretRef: fluxmeta.LocalObjectReference{Name: "fleet-status"}}}}
	w.in = harness.Install(ns, "i")
	w.in.Spec.SourceRef.Name = w.src.Name
	return w
}

// waits has what is committed from now on wait for a ConfigMap.
func (w *followed) waits(ctx context.Context, name string) {
	GinkgoHelper()
	patch(ctx, w.in, fmt.Sprintf(`{"spec":{"dependsOn":[{"apiVersion":"v1","kind":"ConfigMap","name":%q}]}}`, name))
	says(ctx, w.in, metav1.ConditionTrue, "") // what is installed stays so
}

// arrives makes a ConfigMap that is waited for.
func (w *followed) arrives(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(h.Plane.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.in.Namespace, Name: name}})).To(Succeed())
}

// goes deletes what was made, and waits until it is gone.
func (w *followed) goes(ctx context.Context) {
	GinkgoHelper()
	for _, o := range []client.Object{w.in, w.src} {
		Expect(client.IgnoreNotFound(h.Plane.Client().Delete(ctx, o))).To(Succeed())
		Eventually(ctx, func() error { return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o) }, soon).
			Should(MatchError(ContainSubstring("not found")), "%s goes", o.GetName())
	}
}

// commit pushes a tree, and has it looked at.
func (w *followed) commit(ctx context.Context, tree map[string]string) string {
	GinkgoHelper()
	id, err := w.repo.Commit(ctx, tree, "change")
	Expect(err).NotTo(HaveOccurred())
	ask(ctx, w.src, id)
	return id
}

// become waits until a commit was told these states of the install, and no other.
func (w *followed) become(ctx context.Context, commit string, states ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []string { return w.server.states(commit, w.context) }, soon).Should(Equal(states))
}

// events of the source, of a reason.
func (w *followed) events(ctx context.Context, reason string) (out []string, err error) {
	var all corev1.EventList
	err = h.Plane.Client().List(ctx, &all, client.InNamespace(w.src.Namespace))
	for _, e := range all.Items {
		if e.InvolvedObject.UID == w.src.UID && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out, err
}

var _ = Describe("A KsctlSource with a commit status", func() {
	It("tells each commit how it went, once, and people of a token that is wrong", func(ctx SpecContext) {
		ns, err := h.Namespace(ctx, "commitstatus")
		Expect(err).NotTo(HaveOccurred())
		c, err := h.StartController()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return c.Stop() })
		w := newFollowed(ctx, ns)
		first, err := w.repo.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())

		By("showing a token that the server does not know")
		out, err := run(ctx, "token="+wrongStatusToken+"\n"+shell("commit-status.md")["Set it up"], ns, "")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(h.Plane.Client().Create(ctx, w.src)).To(Succeed())
		Expect(h.Plane.Client().Create(ctx, w.in)).To(Succeed())
		Eventually(ctx, w.events, soon).WithArguments(ctx, "CommitStatusFailed").Should(
			ContainElement(And(ContainSubstring("the Secret "+ns+"/fleet-status"), ContainSubstring("401"), ContainSubstring("write:repository"))))
		Expect(run(ctx, shell("commit-status.md")["When nothing arrives"], ns, "")).To(ContainSubstring("CommitStatusFailed"))
		says(ctx, w.in, metav1.ConditionTrue, first)
		Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)).To(Succeed())
		Expect(apimeta.IsStatusConditionTrue(w.src.Status.Conditions, "Ready")).To(BeTrue(), "the source is as good as before")

		By("showing the right one")
		patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-status"}}, fmt.Sprintf(`{"stringData":{"token":%q}}`, statusToken))
		w.become(ctx, first, "success")
		Expect(w.server.of(first, w.context)).To(ConsistOf(ContainSubstring("Applied revision main@sha1:" + first)))

		By("committing what has to wait")
		w.waits(ctx, "second")
		second := w.commit(ctx, stack("2"))
		w.become(ctx, second, "pending")
		w.arrives(ctx, "second")
		w.become(ctx, second, "pending", "success")

		By("looking again at what did not change")
		for i := range 3 {
			token := fmt.Sprint("again ", i)
			ask(ctx, w.src, token)
			ask(ctx, w.in, token)
			Eventually(ctx, func() ([]string, error) {
				err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)
				return []string{w.src.Status.LastHandledReconcileAt, w.in.Status.LastHandledReconcileAt}, errorsOf(err, h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(w.in), w.in))
			}, soon).Should(HaveEach(token))
		}

		By("committing what is wrong")
		wrong := stack("3")
		wrong["stacks/app/stack.yaml"] += "  colour: blue\n"
		third := w.commit(ctx, wrong)
		Eventually(ctx, func() []string { return w.server.of(third, w.context) }, soon).Should(
			ContainElement(And(HavePrefix("failure "), ContainSubstring("stack.yaml"), ContainSubstring("colour"))))

		By("committing what is right, and starting again")
		fourth := w.commit(ctx, stack("4"))
		Eventually(ctx, func() []string { return w.server.states(fourth, w.context) }, soon).Should(ContainElement("success"))
		before := len(w.server.states(fourth, w.context))
		Expect(c.Stop()).To(Succeed())
		c, err = h.StartController()
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() int { return len(w.server.states(fourth, w.context)) }, soon).Should(BeNumerically(">", before), "a start tells it once more")
		w.waits(ctx, "last")
		last := w.commit(ctx, stack("5"))
		w.become(ctx, last, "pending")
		w.arrives(ctx, "last")
		w.become(ctx, last, "pending", "success")

		Expect(w.server.states(first, w.context)).To(HaveExactElements("success"))
		Expect(w.server.states(second, w.context)).To(HaveExactElements("pending", "success"), "looking again is not told")
		Expect(w.server.strangers()).To(BeEmpty())
		w.goes(ctx)
	})

	It("tells a commit that another one came before it was ready, or that its install went", func(ctx SpecContext) {
		ns, err := h.Namespace(ctx, "commitstatus")
		Expect(err).NotTo(HaveOccurred())
		c, err := h.StartController()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return c.Stop() })
		w := newFollowed(ctx, ns)
		first, err := w.repo.Commit(ctx, stack("1"), "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Plane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-status"},
			StringData: map[string]string{"token": statusToken}})).To(Succeed())
		w.in.Spec.DependsOn = []appsv1.Dependency{{APIVersion: "v1", Kind: "ConfigMap", Name: "never"}}
		Expect(h.Plane.Client().Create(ctx, w.src)).To(Succeed())
		Expect(h.Plane.Client().Create(ctx, w.in)).To(Succeed())
		w.become(ctx, first, "pending")
		second := w.commit(ctx, stack("2"))
		w.become(ctx, first, "pending", "error")
		w.become(ctx, second, "pending")
		Expect(h.Plane.Client().Delete(ctx, w.in)).To(Succeed())
		w.become(ctx, second, "pending", "error")
		w.goes(ctx)
	})
})
