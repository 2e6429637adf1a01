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

// awaitArtifact waits until an install publishes a revision other than before, from the revision
// origin of the source, and returns the ExternalArtifact.
func (w fixture) awaitArtifact(ctx context.Context, name, before, origin string) *sourcev1.ExternalArtifact {
	GinkgoHelper()
	o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	Eventually(ctx, func() (string, error) {
		o.Status.Artifact = nil
		if err := get(ctx, o); err != nil {
			return "", err
		}
		a := o.Status.Artifact
		if a == nil || a.Revision == before {
			return "no other revision", nil
		}
		return a.Metadata["org.opencontainers.image.revision"], nil
	}, soon).Should(Equal(origin))
	Expect(o.Status.Artifact.Revision).To(Equal("1.0.0@" + o.Status.Artifact.Digest))
	return o
}

// awaitPublished waits until the Published condition of an install has a status, a reason and a
// message with all texts.
func (w fixture) awaitPublished(ctx context.Context, name string, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	all := HavePrefix(fmt.Sprintf("%s %s: ", status, reason))
	for _, s := range texts {
		all = And(all, ContainSubstring(s))
	}
	Eventually(ctx, func() (string, error) {
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		if err := get(ctx, in); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition)
		if c == nil {
			return "no Published condition", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}, soon).Should(all)
}

const (
	publishOnly = "  publish: {mode: Only}\n"
	fromInstall = "sourceRef: {kind: ExternalArtifact, name: app}"
)

var _ = Describe("An install with spec.publish", func() {
	It("in mode Only is applied by a Kustomization, with overrides and new revisions, and the objects stay when the "+
		"install is removed", func(ctx SpecContext) {
		files := content(map[string]string{"clusters/prod/install.yaml": installManifest + publishOnly})
		w := newFixture(ctx, files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))
		first := w.awaitArtifact(ctx, "app", "", w.head(ctx))
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeTrue(), "the install itself applies nothing")

		taker := w.sync(ctx, "taker", "./", fromInstall)
		readyAt(ctx, taker, first.Status.Artifact.Revision)
		origin, _, _ := unstructured.NestedString(taker.Object, "status", "lastAppliedOriginRevision")
		Expect(origin).To(Equal(w.head(ctx)), "the Kustomization has the origin commit")
		base := configMapOf(w.ns, "base")
		Expect(get(ctx, base)).To(Succeed())
		Expect(base.Labels).To(HaveKeyWithValue("kustomize.toolkit.fluxcd.io/name", "taker"))
		Expect(base.Annotations).NotTo(HaveKey(live.MarkAnnotation))

		By("an override")
		files["clusters/prod/install.yaml"] = installManifest + publishOnly + clusterOverride
		revision := w.commit(ctx, files)
		second := w.awaitArtifact(ctx, "app", first.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, second.Status.Artifact.Revision)
		Expect(value(ctx, w.ns, "base", "site")).To(Equal("e2e"))

		By("a commit that removes a component from the stack")
		files["stacks/app/stack.yaml"] = strings.ReplaceAll(stack,
			"  - {name: extra, manifests: [extra/], dependsOn: [base]}\n", "")
		files["stacks/app/base/base.yaml"] = configMap("base", "2")
		revision = w.commit(ctx, files)
		third := w.awaitArtifact(ctx, "app", second.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, third.Status.Artifact.Revision)
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"))
		Expect(absent(ctx, configMapOf(w.ns, "extra"))).To(BeTrue(), "the object is pruned")

		By("a commit that does not change the render, and a request: only the request is answered")
		files["README.md"] = "nothing"
		revision = w.commit(ctx, files)
		readyAt(ctx, in, revision)
		at := requestReconcile(ctx, in)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, in).Should(Equal(at))
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		at = requestReconcile(ctx, in)
		Eventually(ctx, lastHandledRequest, soon).WithArguments(ctx, in).Should(Equal(at))
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		ours := requests.Where(cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace,
			harness.ServiceAccount)), cluster.InNamespace(w.ns)).
			Without(cluster.Watch, cluster.Resource("events"))
		Expect(ours).To(HaveLen(1), ours.String())
		Expect(ours.Where(cluster.Resource("ksctlinstalls/status"))).To(HaveLen(1), ours.String())
		same := w.awaitArtifact(ctx, "app", "", third.Status.Artifact.Metadata["org.opencontainers.image.revision"])
		Expect(same.ResourceVersion).To(Equal(third.ResourceVersion))

		By("removing the install from the repository")
		delete(files, "clusters/prod/install.yaml")
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, absent, soon).WithArguments(ctx, in).Should(BeTrue())
		Expect(absent(ctx, same)).To(BeTrue())
		requestReconcile(ctx, taker)
		notReady(ctx, taker, "ArtifactFailed", "app")
		Expect(value(ctx, w.ns, "base", "value")).To(Equal("2"), "the object stays until the Kustomization is deleted")
	}, SpecTimeout(15*time.Minute))

	It("publishes only ready revisions, and Secrets only on request", func(ctx SpecContext) {
		other, err := h.Namespace(ctx, "flux")
		Expect(err).NotTo(HaveOccurred())
		install := func(publish string) string { return installManifest + publish }
		files := content(map[string]string{"clusters/prod/install.yaml": install("  publish: {}\n"),
			"stacks/app/base/web.yaml": deployment(cluster.FateNeverReady)})
		w := newFixture(ctx, files)
		k, in := w.sync(ctx, "cluster", "./clusters/prod", "wait: false"), w.object("KsctlInstall", "app")
		taker := w.sync(ctx, "taker", "./", fromInstall+"\ntargetNamespace: "+other)
		Eventually(ctx, absent, soon).WithArguments(ctx, configMapOf(w.ns, "base")).
			Should(BeFalse(), "the install applies its objects")
		w.awaitPublished(ctx, "app", "Unknown", "Progressing", "when the install is ready")
		Expect(absent(ctx, w.object("ExternalArtifact", "app"))).To(BeTrue())

		By("a ready Deployment")
		files["stacks/app/base/web.yaml"] = deployment("")
		revision := w.commit(ctx, files)
		readyAt(ctx, in, revision)
		w.awaitPublished(ctx, "app", "True", "Succeeded")
		first := w.awaitArtifact(ctx, "app", "", revision)
		readyAt(ctx, taker, first.Status.Artifact.Revision)
		Expect(value(ctx, other, "extra", "value")).To(Equal("1"))

		By("a Secret in the stack")
		files["stacks/app/extra/secret.yaml"] = "apiVersion: v1\nkind: Secret\n" +
			"metadata: {name: token}\nstringData: {token: e2e}\n"
		readyAt(ctx, in, w.commit(ctx, files))
		w.awaitPublished(ctx, "app", "False", "SecretsRefused", w.ns+"/token", "spec.publish.secrets")
		Expect(readySummary(ctx, in)).To(ContainSubstring("; not published: "))
		Expect(w.awaitArtifact(ctx, "app", "", revision).ResourceVersion).
			To(Equal(first.ResourceVersion), "the previous artifact stays")

		By("omitting the Secret")
		files["stacks/app/extra/extra.yaml"] = configMap("extra", "2")
		files["clusters/prod/install.yaml"] = install("  publish: {secrets: Omit}\n")
		revision = w.commit(ctx, files)
		readyAt(ctx, k, revision)
		second := w.awaitArtifact(ctx, "app", first.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, second.Status.Artifact.Revision)
		Expect(value(ctx, other, "extra", "value")).To(Equal("2"))
		token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "token"}}
		Expect(absent(ctx, token)).To(BeTrue())

		By("including the Secret")
		files["clusters/prod/install.yaml"] = install("  publish: {secrets: Include}\n")
		revision = w.commit(ctx, files)
		third := w.awaitArtifact(ctx, "app", second.Status.Artifact.Revision, revision)
		readyAt(ctx, taker, third.Status.Artifact.Revision)
		Expect(absent(ctx, token)).To(BeFalse())

		By("removing spec.publish")
		files["clusters/prod/install.yaml"] = installManifest
		readyAt(ctx, k, w.commit(ctx, files))
		Eventually(ctx, absent, soon).WithArguments(ctx, w.object("ExternalArtifact", "app")).Should(BeTrue())
		Expect(absent(ctx, configMapOf(w.ns, "base"))).To(BeFalse(), "installed objects stay")
	}, SpecTimeout(15*time.Minute))
})
