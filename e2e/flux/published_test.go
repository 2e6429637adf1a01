package flux_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// offered waits until what an install publishes has another revision than before, of a
// revision of the source, and gives it.
func (w world) offered(ctx context.Context, name, before, origin string) *sourcev1.ExternalArtifact {
	GinkgoHelper()
	o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	Eventually(ctx, func() (string, error) {
		o.Status.Artifact = nil
		if err := get(ctx, o); err != nil {
			return "", err
		}
		a := o.Status.Artifact
		if a == nil || a.Revision == before {
			return "nothing else", nil
		}
		return a.Metadata["org.opencontainers.image.revision"], nil
	}, soon).Should(Equal(origin))
	Expect(o.Status.Artifact.Revision).To(Equal("1.0.0@" + o.Status.Artifact.Digest))
	return o
}

// published waits until the condition Published of an install is as wanted.
func (w world) published(ctx context.Context, name string, status metav1.ConditionStatus, reason string, said ...string) {
	GinkgoHelper()
	all := HavePrefix(fmt.Sprintf("%s %s: ", status, reason))
	for _, s := range said {
		all = And(all, ContainSubstring(s))
	}
	Eventually(ctx, func() (string, error) {
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		if err := get(ctx, in); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition)
		if c == nil {
			return "no such condition", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}, soon).Should(all)
}

const (
	publishOnly = "  publish: {mode: Only}\n"
	fromInstall = "sourceRef: {kind: ExternalArtifact, name: app}"
)

var _ = Describe("An install that publishes", func() {
	It("only: a Kustomization applies what it renders, follows overrides and the source, and keeps what it has when the install goes", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": kinInstall + publishOnly})
		w := newWorld(ctx, files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))
		first := w.offered(ctx, "app", "", w.head(ctx))
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeTrue(), "nothing is installed here")

		taker := w.sync(ctx, "taker", "./", fromInstall)
		readyAt(ctx, taker, first.Status.Artifact.Revision)
		origin, _, _ := unstructured.NestedString(taker.Object, "status", "lastAppliedOriginRevision")
		Expect(origin).To(Equal(w.head(ctx)), "it knows the commit")
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.Labels).To(HaveKeyWithValue("kustomize.toolkit.fluxcd.io/name", "taker"))
		Expect(base.Annotations).NotTo(HaveKey(live.MarkAnnotation))

		By("an override")
		files["clusters/prod/install.yaml"] = kinInstall + publishOnly + site
		revision := w.commit(ctx, files)
		second := w.offered(ctx, "app", first.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, second.Status.Artifact.Revision)
		Expect(value(ctx, w.ns, "base", "site")).To(Equal("e2e"))

		By("a commit to the stack, out of which a component goes")
		files["stacks/app/stack.yaml"] = strings.ReplaceAll(stack, "  - {name: extra, manifests: [extra/], dependsOn: [base]}\n", "")
		files["stacks/app/base/base.yaml"] = configMap("base", "2")
		revision = w.commit(ctx, files)
		third := w.offered(ctx, "app", second.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, third.Status.Artifact.Revision)
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"))
		Expect(gone(ctx, configMapOf(w.ns, "extra"))).To(BeTrue(), "it is pruned")

		By("a commit that changes nothing of what is rendered, and a request: nothing is written but what answers")
		files["README.md"] = "nothing"
		revision = w.commit(ctx, files)
		readyAt(ctx, in, revision)
		at := ask(ctx, in)
		Eventually(ctx, answered, soon).WithArguments(ctx, in).Should(Equal(at))
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		at = ask(ctx, in)
		Eventually(ctx, answered, soon).WithArguments(ctx, in).Should(Equal(at))
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		ours := requests.Where(cluster.By(cluster.ServiceAccountUser(harness.SystemNamespace, harness.Account)), cluster.In(w.ns)).
			Without(cluster.Watch, cluster.Resource("events"))
		Expect(ours).To(HaveLen(1), ours.String())
		Expect(ours.Where(cluster.Resource("ksctlinstalls/status"))).To(HaveLen(1), ours.String())
		same := w.offered(ctx, "app", "", third.Status.Artifact.Metadata["org.opencontainers.image.revision"])
		Expect(same.ResourceVersion).To(Equal(third.ResourceVersion))

		By("the install leaving the repository")
		delete(files, "clusters/prod/install.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, gone, soon).WithArguments(ctx, in).Should(BeTrue())
		Expect(gone(ctx, same)).To(BeTrue())
		ask(ctx, taker)
		refuses(ctx, taker, "ArtifactFailed", "app")
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"), "it stays until the Kustomization goes")
	}, SpecTimeout(15*time.Minute))

	It("what is ready here: never what is not, and no Secret unasked", func(ctx SpecContext) {
		other, err := h.Namespace(ctx, "flux")
		Expect(err).NotTo(HaveOccurred())
		install := func(publish string) string { return kinInstall + publish }
		files := content(map[string]string{"clusters/prod/install.yaml": install("  publish: {}\n"), "stacks/app/base/web.yaml": deployment(cluster.FateNeverReady)})
		w := newWorld(ctx, files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", "wait: false"), w.object("KsctlInstall", "app")
		taker := w.sync(ctx, "taker", "./", fromInstall+"\ntargetNamespace: "+other)
		Eventually(ctx, gone, soon).WithArguments(ctx, configMapOf(w.ns, "base")).Should(BeFalse(), "it is installed here")
		w.published(ctx, "app", "Unknown", "Progressing", "when it is ready")
		Expect(gone(ctx, w.object("ExternalArtifact", "app"))).To(BeTrue())

		By("it being ready")
		files["stacks/app/base/web.yaml"] = deployment("")
		revision := w.commit(ctx, files)
		readyAt(ctx, in, revision)
		w.published(ctx, "app", "True", "Succeeded")
		first := w.offered(ctx, "app", "", revision)
		readyAt(ctx, taker, first.Status.Artifact.Revision)
		Expect(value(ctx, other, "extra", "value")).To(Equal("1"))

		By("a Secret in it")
		files["stacks/app/extra/secret.yaml"] = "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {token: e2e}\n"
		readyAt(ctx, in, w.commit(ctx, files))
		w.published(ctx, "app", "False", "SecretsRefused", w.ns+"/token", "spec.publish.secrets")
		Expect(told(ctx, in)).To(ContainSubstring("; not published: "))
		Expect(w.offered(ctx, "app", "", revision).ResourceVersion).To(Equal(first.ResourceVersion), "it offers what it did")

		By("the Secret being left out")
		files["stacks/app/extra/extra.yaml"] = configMap("extra", "2")
		files["clusters/prod/install.yaml"] = install("  publish: {secrets: Omit}\n")
		revision = w.commit(ctx, files)
		readyAt(ctx, k, revision)
		second := w.offered(ctx, "app", first.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, second.Status.Artifact.Revision)
		Expect(value(ctx, other, "extra", "value")).To(Equal("2"))
		token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "token"}}
		Expect(gone(ctx, token)).To(BeTrue())

		By("the Secret being meant")
		files["clusters/prod/install.yaml"] = install("  publish: {secrets: Include}\n")
		revision = w.commit(ctx, files)
		third := w.offered(ctx, "app", second.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, third.Status.Artifact.Revision)
		Expect(gone(ctx, token)).To(BeFalse())

		By("nothing being published any more")
		files["clusters/prod/install.yaml"] = kinInstall
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, gone, soon).WithArguments(ctx, w.object("ExternalArtifact", "app")).Should(BeTrue())
		Expect(gone(ctx, configMapOf(w.ns, "base"))).To(BeFalse(), "what is installed stays")
	}, SpecTimeout(15*time.Minute))
})
