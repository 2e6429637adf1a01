package install_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/stacks/generated"
)

// fluxSource returns a Flux source without a status.
func fluxSource(kind, ns, name string) client.Object {
	minute := metav1.Duration{Duration: time.Minute}
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{ObjectMeta: objectMeta(ns, name),
			Spec: sourcev1.GitRepositorySpec{URL: "https://git.example.com/x", Interval: minute}}
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{ObjectMeta: objectMeta(ns, name),
			Spec: sourcev1.OCIRepositorySpec{URL: "oci://registry.example.com/x", Interval: minute}}
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{ObjectMeta: objectMeta(ns, name),
			Spec: sourcev1.BucketSpec{Endpoint: "s3.example.com", BucketName: "x", Interval: minute}}
	default:
		return &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, name)}
	}
}

// setSourceStatus writes the status of a source as its controller would: the Ready condition,
// and an artifact with one ConfigMap if there is a revision.
func setSourceStatus(ctx context.Context, kind string, o client.Object, revision, status, message string) {
	GinkgoHelper()
	doc := map[string]any{"observedGeneration": o.GetGeneration(), "conditions": []metav1.Condition{{Type: "Ready",
		Status: metav1.ConditionStatus(status),
		Reason: "Spec", Message: message, ObservedGeneration: o.GetGeneration(), LastTransitionTime: metav1.Now()}}}
	if kind == sourcev1.ExternalArtifactKind {
		delete(doc, "observedGeneration")
	}
	if revision != "" {
		files := map[string]string{"main/a.yaml": configMap("a", revision)}
		a, err := server.Publish(fmt.Sprintf("%s/%s/%s", strings.ToLower(kind), o.GetNamespace(), o.GetName()),
			tree(oneComponent, files), revision)
		Expect(err).NotTo(HaveOccurred())
		doc["artifact"] = a
	}
	raw, err := json.Marshal(map[string]any{"status": doc})
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Client().Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))).To(Succeed())
}

func fromSource(kind, name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Kind, in.Spec.SourceRef.Name = kind, name }
}

func withPublish(in *appsv1.KsctlInstall) { in.Spec.Publish = &appsv1.Publish{} }

// awaitPublished waits until the Published condition of an install has a status, a reason and
// a message with all texts.
func awaitPublished(ctx context.Context, in *appsv1.KsctlInstall, status metav1.ConditionStatus, reason string,
	texts ...string) {
	GinkgoHelper()
	all := HavePrefix(string(status) + " " + reason + ": ")
	for _, text := range texts {
		all = And(all, ContainSubstring(text))
	}
	Eventually(ctx, func() (string, error) {
		err := get(ctx, in)
		c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.PublishedCondition)
		if err != nil || c == nil {
			return "no such condition", err
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}, soon, 20*time.Millisecond).Should(all)
}

// fluxKinds are the Flux source kinds that the specs use.
var fluxKinds = []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind,
	sourcev1.ExternalArtifactKind}

// serveFluxSources installs the CRDs of these kinds, which a spec that runs alone needs.
func serveFluxSources(ctx context.Context) {
	GinkgoHelper()
	Expect(plane.Apply(ctx, "testdata/crds")).To(Succeed())
}

var _ = Describe("Flux sources whose CRDs are installed after the controller started", Ordered, func() {
	It("are reported while their kinds are not served, and wake the installs that wait "+
		"for them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		installs := map[string]*appsv1.KsctlInstall{}
		for _, kind := range fluxKinds {
			in := newInstall(ctx, ns, strings.ToLower(kind), hourly, fromSource(kind, "src"))
			reports(ctx, in, "False", "SourceKindNotServed", "does not serve "+kind, "KsctlSource")
			installs[kind] = in
		}
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		publisher := newInstall(ctx, ns, "publisher", hourly, withPublish)
		awaitPublished(ctx, publisher, "False", "SourceKindNotServed", "does not serve ExternalArtifact")
		becomes(ctx, publisher, "True", "ReconciliationSucceeded") // the objects of the install are ready nevertheless
		serveFluxSources(ctx)
		began := time.Now()
		for _, kind := range fluxKinds {
			reports(ctx, installs[kind], "False", "SourceNotFound", kind+" "+ns+"/src does not exist")
		}
		AddReportEntry("from the definitions to the conditions of the installs", time.Since(began).String())
		awaitPublished(ctx, publisher, "True", "Succeeded", "ExternalArtifact "+ns+"/publisher")
		commit(ctx, publisher, func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true })
		for _, kind := range fluxKinds {
			src := fluxSource(kind, ns, "src")
			Expect(plane.Client().Create(ctx, src)).To(Succeed())
			reports(ctx, installs[kind], "Unknown", "SourceNotReady", kind+" "+ns+"/src has no artifact yet",
				"not reconciled yet")
			commit(ctx, installs[kind], func(in *appsv1.KsctlInstall) { in.Spec.Suspend = true })
		}
	})

	It("recover when their CRD is deleted and created again", func(ctx SpecContext) {
		serveFluxSources(ctx)
		ns := namespaceFor(ctx)
		in := newInstall(ctx, ns, "i", hourly, fromSource(sourcev1.ExternalArtifactKind, "src"))
		reports(ctx, in, "False", "SourceNotFound")
		for i := range 2 {
			By(fmt.Sprint("round ", i))
			crd := widgetObject("", "", "externalartifacts."+sourcev1.GroupVersion.Group)
			crd.SetGroupVersionKind(crdKind)
			deleteAndWait(ctx, crd)
			reports(ctx, in, "False", "SourceKindNotServed")
			Expect(plane.Apply(ctx, "testdata/crds/externalartifacts.yaml")).To(Succeed())
			reports(ctx, in, "False", "SourceNotFound")
			src := fluxSource(sourcev1.ExternalArtifactKind, ns, "src")
			Expect(plane.Client().Create(ctx, src)).To(Succeed())
			setSourceStatus(ctx, sourcev1.ExternalArtifactKind, src, fmt.Sprintf("main@sha1:%d", i), "True",
				"stored artifact")
			atRevision(ctx, in, fmt.Sprintf("main@sha1:%d", i))
		}
	})

	It("include the ExternalArtifact that an install publishes", func(ctx SpecContext) {
		serveFluxSources(ctx)
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))

		By("not replacing an ExternalArtifact of another owner")
		theirs := &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "i")}
		Expect(plane.Client().Create(ctx, theirs)).To(Succeed())
		in := newInstall(ctx, ns, "i", hourly, withPublish)
		awaitPublished(ctx, in, "False", "OwnedByAnother", "ExternalArtifact "+ns+"/i exists")
		becomes(ctx, in, "True", "ReconciliationSucceeded")
		Expect(get(ctx, theirs)).To(Succeed())
		Expect(theirs.Status.Artifact).To(BeNil())
		Expect(plane.Client().Delete(ctx, theirs)).To(Succeed())
		awaitPublished(ctx, in, "True", "Succeeded")

		By("restoring it after another client deletes it")
		own := &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "i")}
		Expect(get(ctx, own)).To(Succeed())
		Expect(metav1.IsControlledBy(own, in)).To(BeTrue())
		Expect(own.OwnerReferences[0].BlockOwnerDeletion).To(BeNil(), "it would need another permission")
		uid, revision := own.UID, own.Status.Artifact.Revision
		Expect(plane.Client().Delete(ctx, own)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			again := &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "i")}
			if err := get(ctx, again); err != nil {
				return "", client.IgnoreNotFound(err)
			}
			if again.UID == uid || again.Status.Artifact == nil {
				return "not yet", nil
			}
			return again.Status.Artifact.Revision, nil
		}, soon).Should(Equal(revision))

		By("refusing mode Only while objects are installed, which would get a second owner")
		commit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Publish.Mode = appsv1.PublishOnly })
		reports(ctx, in, "False", "StillInstalled", "1 objects are installed")
		commit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Publish.Mode = "" })
		becomes(ctx, in, "True", "ReconciliationSucceeded")

		By("refusing content of a Secret unless spec.publish.secrets includes it")
		publish(ctx, ns, "charted", "main@sha1:1",
			tree(valued, chartOf("{a: a, b: b, c: c, d: d, e: e, f: f}", letters)))
		Expect(plane.Client().Create(ctx, privateValues(ns, "a: hidden"))).To(Succeed())
		reader := newInstall(ctx, ns, "reader", hourly, withPublish, valuesFrom(appsv1.ValuesReference{Kind: "Secret",
			Name: "private"}), func(in *appsv1.KsctlInstall) {
			in.Spec.SourceRef.Name, in.Spec.Publish.Mode = "charted", appsv1.PublishOnly
		})
		reports(ctx, reader, "False", "SecretsRefused", "private")
		Expect(absent(ctx, &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "reader")})).To(BeTrue())
		commit(ctx, reader, func(in *appsv1.KsctlInstall) { in.Spec.Publish.Secrets = appsv1.SecretsInclude })
		reports(ctx, reader, "True", "ReconciliationSucceeded", "objects are not applied")
		awaitPublished(ctx, reader, "True", "Succeeded", "ExternalArtifact "+ns+"/reader")
		Expect(absent(ctx, aConfigMap(ns, "letters"))).To(BeTrue())

		By("deleting it with the install")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "i")})).To(BeTrue())
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})

	It("include one with generated values, which are kept beside the install", func(ctx SpecContext) {
		serveFluxSources(ctx)
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		name := "published-" + ns
		stop := startController(dedicated(name))
		in := newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall](
			name), func(in *appsv1.KsctlInstall) {
			in.Spec.Publish = &appsv1.Publish{Mode: appsv1.PublishOnly}
		})
		reports(ctx, in, "False", "InvalidStack", "the template uses genCA")
		commit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Publish.Secrets = appsv1.SecretsInclude })
		becomes(ctx, in, "True", "ReconciliationSucceeded")
		artifact := &sourcev1.ExternalArtifact{ObjectMeta: objectMeta(ns, "i")}
		Expect(get(ctx, artifact)).To(Succeed())
		digest := artifact.Status.Artifact.Digest
		kept := generatedSecret(ctx, ns)
		Expect(kept.OwnerReferences).To(ConsistOf(HaveField("UID", in.UID)))

		By("publishing the same after a restart, and putting back a Secret that was deleted")
		stop()
		stop = startController(dedicated(name))
		requestReconcile(ctx, in, "after the restart")
		Expect(get(ctx, artifact)).To(Succeed())
		Expect(artifact.Status.Artifact.Digest).To(Equal(digest))
		Expect(plane.Client().Delete(ctx, kept.DeepCopy())).To(Succeed())
		requestReconcile(ctx, in, "after the deletion")
		Expect(generatedSecret(ctx, ns).Data).To(Equal(kept.Data))

		By("a new version of the chart, and the end of the install")
		publish(ctx, ns, "src", "main@sha1:2", generatingStack("1.0.1", "a.example.com"))
		atRevision(ctx, in, "main@sha1:2")
		before, err := generated.FromSecret(kept)
		Expect(err).NotTo(HaveOccurred())
		after, err := generated.FromSecret(generatedSecret(ctx, ns))
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Calls).To(Equal(before.Calls))
		deleteAndWait(ctx, in)
		Eventually(ctx, func() bool {
			return absent(ctx, kept)
		}, soon, "50ms").Should(BeTrue(), "it goes with the install")
		stop()
	})

	for _, kind := range fluxKinds {
		It("are reconciled from their status: "+kind, func(ctx SpecContext) {
			serveFluxSources(ctx)
			ns := namespaceFor(ctx)
			in := newInstall(ctx, ns, "i", hourly, fromSource(kind, "src"))
			reports(ctx, in, "False", "SourceNotFound", kind+" "+ns+"/src does not exist")
			src := fluxSource(kind, ns, "src")
			Expect(plane.Client().Create(ctx, src)).To(Succeed())
			reports(ctx, in, "Unknown", "SourceNotReady", "not reconciled yet")
			Expect(condition(in, "Stalled")).To(BeNil())

			By("reporting why there is no artifact, and each new cause")
			setSourceStatus(ctx, kind, src, "", "False", "authentication required")
			reports(ctx, in, "Unknown", "SourceNotReady", "has no artifact yet: authentication required")
			setSourceStatus(ctx, kind, src, "", "False", "branch not found")
			reports(ctx, in, "Unknown", "SourceNotReady", "has no artifact yet: branch not found")

			setSourceStatus(ctx, kind, src, "main@sha1:1", "True", "stored artifact")
			atRevision(ctx, in, "main@sha1:1")

			By("applying a new artifact at once")
			mark := auditMark(ctx)
			began := time.Now()
			setSourceStatus(ctx, kind, src, "main@sha1:2", "True", "stored artifact")
			Eventually(ctx, func() (string, error) {
				a := aConfigMap(ns, "a")
				err := get(ctx, a)
				return a.Data["value"], err
			}, soon, 5*time.Millisecond).Should(Equal("main@sha1:2"))
			AddReportEntry("from the artifact to the object", time.Since(began).String())
			atRevision(ctx, in, "main@sha1:2")
			Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).To(HaveLen(1))

			By("keeping the last artifact while the source fails and after it is deleted")
			setSourceStatus(ctx, kind, src, "main@sha1:2", "False", "the server is down")
			Consistently(ctx, func() string {
				_ = get(ctx, in)
				return string(ready(in).Status)
			}, "300ms").Should(Equal("True"))
			Expect(plane.Client().Delete(ctx, src)).To(Succeed())
			reports(ctx, in, "False", "SourceNotFound", kind+" "+ns+"/src does not exist")
			Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeFalse())

			By("continuing with a new source of the same name")
			src = fluxSource(kind, ns, "src")
			Expect(plane.Client().Create(ctx, src)).To(Succeed())
			setSourceStatus(ctx, kind, src, "main@sha1:3", "True", "stored artifact")
			atRevision(ctx, in, "main@sha1:3")

			By("removing the install without its source")
			Expect(plane.Client().Delete(ctx, src)).To(Succeed())
			deleteAndWait(ctx, in)
			Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
		})
	}
})

var _ = Describe("Artifacts", func() {
	It("that can't be fetched are retried and reported", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		server.FailNext(1000) // the content has the namespace in it, so no cache has it
		DeferCleanup(server.FailNext, 0)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", ns)}))
		in := newInstall(ctx, ns, "i", retryEvery(time.Second))
		reports(ctx, in, "False", "ArtifactFailed", "ksctlsource/"+ns+"/src", "503")
		server.FailNext(0)
		atRevision(ctx, in, "main@sha1:1")
	})

	It("that do not match their digest are refused, and the last good artifact stays applied", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		a, err := server.Publish("ksctlsource/"+ns+"/src",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "2")}), "main@sha1:2")
		Expect(err).NotTo(HaveOccurred())
		a.Digest = "sha256:" + strings.Repeat("0", 64)
		src := &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "src")}
		Expect(get(ctx, src)).To(Succeed())
		src.Status.Artifact = &a
		Expect(plane.Client().Status().Update(ctx, src)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(ready(in)).
				To(And(HaveField("Status", BeEquivalentTo("False")), HaveField("Message", ContainSubstring("digest"))))
		}, soon).Should(Succeed())
		Expect(in.Status.LastAppliedRevision).To(Equal("main@sha1:1"))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).To(BeEmpty())
		publish(ctx, ns, "src", "main@sha1:3",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "3")}))
		atRevision(ctx, in, "main@sha1:3")
	})
})
