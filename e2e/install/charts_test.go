package install_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// chartStack returns a stack of one chart from a repository.
func chartStack(repository, version, digest string) string {
	return fmt.Sprintf("spec:\n  version: 1.0.0\n  components:\n  - {name: main, version: %s, helm: {repository: %q, "+
		"name: web, digest: %q}}\n", version, repository, digest)
}

// withChartSecrets sets spec.charts to a repository with its Secrets.
func withChartSecrets(repository string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		in.Spec.Charts = []appsv1.ChartRepository{{Repository: repository,
			SecretRef:     &fluxmeta.LocalObjectReference{Name: "login"},
			CertSecretRef: &fluxmeta.LocalObjectReference{Name: "authority"}}}
	}
}

// chartNamespace creates a namespace with the Secrets of a repository.
func chartNamespace(ctx context.Context, repo *chartRepo) string {
	GinkgoHelper()
	ns := namespaceFor(ctx)
	Expect(plane.Client().Create(ctx, login(ns, secretValue))).To(Succeed())
	Expect(plane.Client().Create(ctx, repo.authority(ns))).To(Succeed())
	return ns
}

// awaitChartValue waits until the ConfigMap of the chart has a value.
func awaitChartValue(ctx context.Context, ns, value string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		cm := aConfigMap(ns, "web")
		err := get(ctx, cm)
		return cm.Data["value"], err
	}, soon, 20*time.Millisecond).Should(Equal(value), "the rendered chart is applied")
}

// request requests a reconcile and waits until it is handled.
func request(ctx context.Context, in *appsv1.KsctlInstall, token string) {
	GinkgoHelper()
	commit(ctx, in, func(in *appsv1.KsctlInstall) {
		in.Annotations = map[string]string{appsv1.RequestedAtAnnotation: token}
	})
	Eventually(ctx, func() (string, error) {
		return in.Status.LastHandledReconcileAt, get(ctx, in)
	}, soon).Should(Equal(token), "the request is handled")
}

func expectNoSecretReported(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	Eventually(ctx, eventsWithReason(ctx, in, ready(in).Reason), soon).
		ShouldNot(BeEmpty(), "all earlier events have arrived, since events are sent in order")
	for _, e := range eventsOf(ctx, in) {
		expectNoSecret("an event", e)
	}
	expectNoSecret("the install", in)
}

var _ = Describe("Charts from repositories", func() {
	It("are installed over HTTPS with a password and a private CA, and fetched only once", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		digest := repo.add("1.2.3", "first")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.3", digest), nil))
		in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.URL))
		atRevision(ctx, in, "main@sha1:1")
		awaitChartValue(ctx, ns, "first")
		Expect(component(in, "main")).To(And(HaveField("Version", "1.2.3"),
			HaveField("Chart",
				Equal(&appsv1.ChartStatus{Repository: repo.URL, Name: "web", Version: "1.2.3", Digest: digest}))))
		Expect(repo.requests()).To(Equal(2), "one for the index, one for the archive")

		By("making no request at another reconcile, another revision and another install")
		request(ctx, in, "again")
		publish(ctx, ns, "src", "main@sha1:2",
			tree(chartStack(repo.URL, "1.2.3", digest)+"  description: other\n", nil))
		atRevision(ctx, in, "main@sha1:2")
		other := chartNamespace(ctx, repo)
		publish(ctx, other, "src", "main@sha1:2", tree(chartStack(repo.URL, "1.2.3", digest), nil))
		atRevision(ctx, newInstall(ctx, other, "i", hourly, withChartSecrets(repo.URL)), "main@sha1:2")
		Expect(repo.requests()).To(Equal(2))

		By("applying another version that the install pins")
		second := repo.add("1.3.0", "second")
		commit(ctx, in, func(in *appsv1.KsctlInstall) {
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "main", Version: "1.3.0", Digest: second}}
		})
		awaitChartValue(ctx, ns, "second")
		becomes(ctx, in, "True", "")
		Expect(component(in, "main").Chart).To(HaveField("Digest", second))
		expectNoSecretReported(ctx, in)
	})

	It("are installed from an OCI registry", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		digest, manifest := repo.push("1.2.3", "first")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.oci(), "1.2.3", manifest), nil))
		in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.oci()))
		atRevision(ctx, in, "main@sha1:1")
		awaitChartValue(ctx, ns, "first")
		Expect(component(in, "main").Chart).
			To(Equal(&appsv1.ChartStatus{Repository: repo.oci(), Name: "web", Version: "1.2.3", Digest: digest}))
		expectNoSecretReported(ctx, in)
	})

	It("are refused with another digest, and in a version that does not exist", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		digest := repo.add("1.2.3", "first")
		repo.add("1.2.4", "second")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.4", digest), nil))
		in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.URL))
		reports(ctx, in, "False", "ChartDigestMismatch", `component "main": chart web 1.2.4 of `+repo.URL,
			digest+" is pinned")
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		Expect(absent(ctx, aConfigMap(ns, "web"))).To(BeTrue())

		publish(ctx, ns, "src", "main@sha1:2", tree(chartStack(repo.URL, "1.2.5", ""), nil))
		reports(ctx, in, "False", "ChartNotFound",
			"the repository does not have this version; nearest versions: 1.2.3, 1.2.4")
		Expect(condition(in, "Stalled")).NotTo(BeNil())

		publish(ctx, ns, "src", "main@sha1:3", tree(chartStack(repo.URL, "1.2.3", digest), nil))
		atRevision(ctx, in, "main@sha1:3")
		expectNoSecretReported(ctx, in)
	})

	It("wait for an unavailable repository, and installed objects stay", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		repo.add("1.2.3", "first")
		repo.add("1.3.0", "second")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.3", ""), nil))
		in := newInstall(ctx, ns, "i", retryEvery(time.Second), withChartSecrets(repo.URL))
		atRevision(ctx, in, "main@sha1:1")
		repo.change(func() { repo.down = true })
		publish(ctx, ns, "src", "main@sha1:2", tree(chartStack(repo.URL, "1.3.0", ""), nil))
		reports(ctx, in, "False", "ChartRepositoryUnreachable", "the index of the repository can't be read")
		Expect(condition(in, "Stalled")).To(BeNil(), "it is retried")
		Expect(condition(in, "Reconciling")).NotTo(BeNil())
		awaitChartValue(ctx, ns, "first")
		repo.change(func() { repo.down = false })
		atRevision(ctx, in, "main@sha1:2")
		awaitChartValue(ctx, ns, "second")
		expectNoSecretReported(ctx, in)
	})

	It("use Secrets only from the namespace of the install, and only if its account may "+
		"read them", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		repo.add("1.2.3", "first")
		chartNamespace(ctx, repo) // has Secrets with the same names
		ns := configMapsOnlyNamespace(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.3", ""), nil))
		in := newInstall(ctx, ns, "i", retryEvery(time.Second), withChartSecrets(repo.URL))
		reports(ctx, in, "False", "ChartSecretNotFound", "Secret "+ns+"/login for the repository "+repo.URL+
			" does not exist")

		By("reading them as the account")
		Expect(plane.Client().Create(ctx, login(ns, "wrong"))).To(Succeed())
		Expect(plane.Client().Create(ctx, repo.authority(ns))).To(Succeed())
		reports(ctx, in, "False", "ReconciliationFailed", "forbidden", tenant(ns), `cannot get resource "secrets"`)
		Expect(repo.requests()).To(BeZero())
		allow(ctx, ns, "secrets")

		By("being refused with a wrong password, and using the right one at once")
		reports(ctx, in, "False", "ChartAccessDenied", "401 Unauthorized")
		commit(ctx, in, hourly)
		Expect(plane.Client().Update(ctx, login(ns, secretValue))).To(Succeed())
		atRevision(ctx, in, "main@sha1:1")
		awaitChartValue(ctx, ns, "first")
		expectNoSecretReported(ctx, in)
	})

	It("are refused when they change without a new version", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		digest := repo.add("1.2.3", "first")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.3", ""), nil))
		in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.URL))
		atRevision(ctx, in, "main@sha1:1")
		changed := repo.add("1.2.3", "changed")
		secret := login(ns, secretValue)
		secret.StringData["note"] = "other credentials ask the repository again"
		Expect(plane.Client().Update(ctx, secret)).To(Succeed())
		reports(ctx, in, "False", "ChartChanged", digest, changed, "review the change, then")
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		awaitChartValue(ctx, ns, "first")

		By("applying the pinned digest")
		publish(ctx, ns, "src", "main@sha1:2", tree(chartStack(repo.URL, "1.2.3", changed), nil))
		atRevision(ctx, in, "main@sha1:2")
		awaitChartValue(ctx, ns, "changed")
		Expect(component(in, "main").Chart).To(HaveField("Digest", changed))
	})

	It("include the dependencies of a chart in the source, in the versions of its Chart.lock", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		cache := repo.addChart("cache", "1.4.2", "first")
		repo.addChart("cache", "1.5.0", "not locked")
		web, _ := repo.push("2.5.0", "pushed")
		ns := chartNamespace(ctx, repo)
		publish(ctx, ns, "src", "main@sha1:1", tree(umbrellaStack, umbrella(repo, "1.4.2")))
		in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.URL), func(in *appsv1.KsctlInstall) {
			registry := in.Spec.Charts[0]
			registry.Repository = repo.oci()
			in.Spec.Charts = append(in.Spec.Charts, registry)
		})
		atRevision(ctx, in, "main@sha1:1")
		awaitChartValue(ctx, ns, "pushed")
		Expect(valueOf(ctx, ns, "cache")).To(Equal("first"))
		Expect(valueOf(ctx, ns, "umbrella")).To(Equal("own"))
		Expect(component(in, "main")).To(And(HaveField("Version", "1.0.0"), HaveField("Chart",
			BeNil()), HaveField("ChartDependencies", Equal([]appsv1.ChartStatus{
			{Repository: repo.URL + "/", Name: "cache", Version: "1.4.2", Digest: cache},
			{Repository: repo.oci(), Name: "web", Version: "2.5.0", Digest: web},
		}))))

		By("making no request at another reconcile")
		asked := repo.requests()
		request(ctx, in, "again")
		Expect(repo.requests()).To(Equal(asked))

		By("refusing another archive with the same version")
		changed := repo.addChart("cache", "1.4.2", "changed")
		secret := login(ns, secretValue)
		secret.StringData["note"] = "other credentials ask the repository again"
		Expect(plane.Client().Update(ctx, secret)).To(Succeed())
		reports(ctx, in, "False", "ChartChanged", "chart cache 1.4.2 of "+repo.URL+
			"/ (which stacks/app/umbrella depends on)", cache, changed, "vendor it")
		Expect(condition(in, "Stalled")).NotTo(BeNil())
		Expect(valueOf(ctx, ns, "cache")).To(Equal("first"))

		By("refusing a Chart.lock that is out of sync, and applying the next one")
		files := umbrella(repo, "1.5.0")
		stale := umbrella(repo, "0.9.0")
		publish(ctx, ns, "src", "main@sha1:2", tree(umbrellaStack, stale))
		reports(ctx, in, "False", "InvalidStack", "stacks/app/umbrella/Chart.lock", "out of sync with Chart.yaml",
			"run helm dependency update and commit Chart.lock")
		publish(ctx, ns, "src", "main@sha1:3", tree(umbrellaStack, files))
		atRevision(ctx, in, "main@sha1:3")
		Expect(valueOf(ctx, ns, "cache")).To(Equal("not locked"))
		expectNoSecretReported(ctx, in)
	})

	It("include a dependency that conditions and tags of the chart disable only after the values enable it",
		func(ctx SpecContext) {
			repo := newChartRepo(secretValue)
			cache := repo.addChart("cache", "1.4.2", "first")
			ns := chartNamespace(ctx, repo)
			files := umbrella(repo, "1.4.2")
			files["umbrella/Chart.yaml"] = strings.NewReplacer("{name: cache", "{condition: cache.enabled, name: cache",
				"{name: web", "{tags: [web], name: web").Replace(files["umbrella/Chart.yaml"])
			files["umbrella/values.yaml"] = "cache: {enabled: false}\ntags: {web: false}\n"
			publish(ctx, ns, "src", "main@sha1:1", tree(umbrellaStack, files))
			in := newInstall(ctx, ns, "i", hourly, withChartSecrets(repo.URL))
			atRevision(ctx, in, "main@sha1:1")
			Expect(valueOf(ctx, ns, "umbrella")).To(Equal("own"))
			Expect(component(in, "main").ChartDependencies).To(BeEmpty())
			Expect(repo.requests()).To(BeZero(), "no disabled dependency is fetched")

			By("enabling one of them")
			edit(ctx, in, chooseComponents("main", `{"values": {"cache": {"enabled": true}}}`))
			becomes(ctx, in, "True", "")
			Expect(valueOf(ctx, ns, "cache")).To(Equal("first"))
			Expect(component(in, "main").ChartDependencies).To(Equal([]appsv1.ChartStatus{
				{Repository: repo.URL + "/", Name: "cache", Version: "1.4.2", Digest: cache}}))
		})

	It("are rendered by a KsctlRemove to find objects that another tool installed", func(ctx SpecContext) {
		repo := newChartRepo(secretValue)
		digest := repo.add("1.2.3", "first")
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(chartStack(repo.URL, "1.2.3", digest), nil))
		cm := aConfigMap(ns, "web")
		cm.Data = map[string]string{"value": "first"}
		Expect(plane.Client().Create(ctx, cm)).To(Succeed())
		like := &appsv1.KsctlInstall{}
		withChartSecrets(repo.URL)(like)
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}, Spec: appsv1.KsctlRemoveSpec{
			Schedule: appsv1.Schedule{RetryInterval: &metav1.Duration{Duration: time.Hour},
				Interval: &metav1.Duration{Duration: time.Hour}},
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
			ServiceAccountName: "deployer", Charts: like.Spec.Charts}}
		Expect(plane.Client().Create(ctx, rm)).To(Succeed())
		tells := func(reason, text string) {
			GinkgoHelper()
			Eventually(ctx, func() (*metav1.Condition, error) {
				err := get(ctx, rm)
				return apimeta.FindStatusCondition(rm.Status.Conditions, "Ready"), err
			}, soon).Should(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(text))))
		}
		tells("ChartSecretNotFound", "Secret "+ns+"/login for the repository "+repo.URL+" does not exist")

		By("creating the missing Secrets, and correcting an invalid one")
		secret := login(ns, secretValue)
		delete(secret.StringData, "password")
		Expect(plane.Client().Create(ctx, secret)).To(Succeed())
		Expect(plane.Client().Create(ctx, repo.authority(ns))).To(Succeed())
		tells("ChartSecretInvalid", "username and password")
		secret.StringData = login(ns, secretValue).StringData
		Expect(plane.Client().Update(ctx, secret)).To(Succeed())
		tells("AwaitingApproval", "1 objects would be removed")
		Expect(patch(ctx, rm, "somebody", fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, rm.Status.Removal.Digest))).
			To(Succeed())
		tells("Removed", "1 objects of the stack app were removed")
		Eventually(ctx, func() bool { return apierrors.IsNotFound(get(ctx, cm)) }, soon).Should(BeTrue())
		expectNoSecret("the removal", rm)
	})
})

const umbrellaStack = "spec:\n  version: 1.0.0\n  components:\n  - {name: main, helm: {chart: umbrella}}\n"

// umbrella returns a chart that depends on a chart of the index and one of the registry. Its
// Chart.lock has the given version of the former.
func umbrella(repo *chartRepo, cache string) map[string]string {
	dependencies := func(cache, web string) string {
		return fmt.Sprintf("dependencies:\n- {name: cache, version: %q, repository: %q}\n- {name: web, version: %q, "+
			"repository: %q}\n", cache, repo.URL+"/", web, repo.oci())
	}
	return map[string]string{
		"umbrella/Chart.yaml": "apiVersion: v2\nname: umbrella\nversion: 1.0.0\n" + dependencies("^1.4.0", "2.x"),
		"umbrella/Chart.lock": dependencies(cache, "2.5.0") +
			"digest: sha256:0\ngenerated: \"2026-01-02T03:04:05Z\"\n",
		"umbrella/templates/a.yaml": configMap("umbrella", "own"),
	}
}

// valueOf returns the value in a ConfigMap.
func valueOf(ctx context.Context, ns, name string) string {
	GinkgoHelper()
	cm := aConfigMap(ns, name)
	Expect(get(ctx, cm)).To(Succeed())
	return cm.Data["value"]
}
