package install_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/stacks/generated"
)

// releasedByHelm is a stack with the chart of installWithHelm as the same release.
const releasedByHelm = "spec:\n  version: 1.0.0\n  components:\n" +
	"  - {name: shop, helm: {chart: ./chart, releaseName: my}}\n"

const shopStack = "spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: ./chart}}\n"

// shopChart returns the files of a chart with templates, and the content of a ConfigMap.
func shopChart(value string, templates map[string]string) map[string]string {
	files := map[string]string{
		"chart/Chart.yaml":        "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/cm.yaml": configMap("main", value),
	}
	for name, text := range templates {
		files["chart/templates/"+name] = text
	}
	return files
}

// helmChart returns the files of shopChart for installWithHelm and releaseFiles.
func helmChart(value string, templates map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range shopChart(value, templates) {
		out[strings.TrimPrefix(name, "chart/")] = text
	}
	return out
}

// policy returns the metadata of a Helm hook with a delete policy.
func policy(event, policies string) string {
	return fmt.Sprintf(", annotations: {helm.sh/hook: %q, helm.sh/hook-delete-policy: %q}", event, policies)
}

func account(name, meta string) string {
	return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + name + meta + "}\n"
}

// release returns the record of the release of component "shop" of an install.
func release(ctx context.Context, in *appsv1.KsctlInstall) (revision int32, complete bool) {
	GinkgoHelper()
	Expect(get(ctx, in)).To(Succeed())
	r := component(in, "shop").Release
	Expect(r).NotTo(BeNil())
	return r.Revision, r.Complete
}

// forgetStatus removes the status of an install, as a rebuilt management cluster does.
func forgetStatus(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	Expect(plane.Client().Status().Patch(ctx, in, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"inventory":null,"components":null,"lastAppliedRevision":null,"conditions":null}}`)))).
		To(Succeed())
}

var _ = Describe("The release of a chart", func() {
	It("runs the hooks of its event, once for each revision", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		templates := map[string]string{
			"upgrade.yaml": job("upgrade", "", "", hook("pre-upgrade,post-upgrade", 0)),
			"late.yaml":    job("late", "", "", hook("post-install,pre-upgrade", 0)),
			"install.yaml": job("install", "", "", hook("pre-install", 0)),
			"quick.yaml":   job("quick", "", ttlZero, hook("post-install,post-upgrade", 1)),
			"seen.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seen}\ndata: {release: " +
				"\"{{ .Release.IsUpgrade }} {{ .Release.Revision }}\"}\n",
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", templates)))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"install": 1, "late": 1, "quick": 1}))
		Expect(getConfigMap(ctx, ns, "seen").Data["release"]).To(Equal("false 1"))
		revision, complete := release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(1), true}))
		Eventually(ctx, func() []string { return jobsIn(ctx, ns) }, soon).Should(Equal([]string{"install", "late"}),
			"the time to live of the other is over")
		kept := &batchv1.Job{ObjectMeta: objectMeta(ns, "late")}
		Expect(get(ctx, kept)).To(Succeed())
		first := kept.UID

		By("a request runs none again")
		mark = auditMark(ctx)
		requestReconcile(ctx, in, "again")
		Expect(jobRuns(ctx, mark, ns)).To(BeEmpty())

		By("an upgrade runs those of upgrades, and leaves those of installs")
		publish(ctx, ns, "src", "main@sha1:2", tree(shopStack, shopChart("2", templates)))
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"upgrade": 1, "late": 1, "quick": 1}))
		Expect(getConfigMap(ctx, ns, "seen").Data["release"]).To(Equal("true 2"))
		revision, complete = release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(2), true}))
		Expect(get(ctx, kept)).To(Succeed())
		Expect(kept.UID).NotTo(Equal(first), "each run has a Job of its own")
		Eventually(ctx, func() []string { return jobsIn(ctx, ns) }, soon).
			Should(Equal([]string{"install", "late", "upgrade"}), "the hook of the install stays")

		By("a failed upgrade is followed by another one")
		failing := maps.Clone(templates)
		failing["upgrade.yaml"] = job("upgrade", cluster.FateFails, "", hook("pre-upgrade", 0))
		publish(ctx, ns, "src", "main@sha1:3", tree(shopStack, shopChart("3", failing)))
		reports(ctx, in, "False", "HealthCheckFailed", "Job "+ns+"/upgrade is Failed")
		Expect(getConfigMap(ctx, ns, "main").Data["value"]).To(Equal("2"), "a hook before it failed")
		mark = auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:4", tree(shopStack, shopChart("4", templates)))
		atRevision(ctx, in, "main@sha1:4")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"upgrade": 1, "late": 1, "quick": 1}))
		revision, _ = release(ctx, in)
		Expect(revision).To(BeEquivalentTo(4))

		By("a component that comes back is installed")
		publish(ctx, ns, "src", "main@sha1:5",
			tree(oneComponent, map[string]string{"main/c.yaml": configMap("c", "1")}))
		atRevision(ctx, in, "main@sha1:5")
		mark = auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:6", tree(shopStack, shopChart("6", templates)))
		atRevision(ctx, in, "main@sha1:6")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"install": 1, "late": 1, "quick": 1}))
		revision, _ = release(ctx, in)
		Expect(revision).To(BeEquivalentTo(1))
	})

	It("is an install again after a KsctlRemove", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		templates := map[string]string{
			"install.yaml": job("install", "", "", hook("pre-install", 0)),
			"upgrade.yaml": job("upgrade", "", "", hook("pre-upgrade", 0)),
		}
		const stack = shopStack + "  - {name: other, manifests: [other/]}\n"
		files := func(value string) map[string]string {
			out := shopChart(value, templates)
			out["other/o.yaml"] = configMap("other", "1")
			return out
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(stack, files("1")))
		in := newInstall(ctx, ns, "i", retryEvery(time.Second))
		atRevision(ctx, in, "main@sha1:1")
		publish(ctx, ns, "src", "main@sha1:2", tree(stack, files("2")))
		atRevision(ctx, in, "main@sha1:2")
		for name, components := range map[string][]string{"one": {"shop"}, "all": nil} {
			By("removing: " + name)
			rm := &appsv1.KsctlRemove{ObjectMeta: objectMeta(ns, name), Spec: appsv1.KsctlRemoveSpec{
				InstallRef: &appsv1.InstallRef{Name: "i"}, Components: components}}
			Expect(plane.Client().Create(ctx, rm)).To(Succeed())
			Eventually(ctx, func() bool { return absent(ctx, aConfigMap(ns, "main")) }, soon).
				Should(BeTrue(), "the component is removed")
			becomes(ctx, in, "True", appsv1.RemovedByRequestReason)
			requestReconcile(ctx, in, "while removed: "+name)
			mark := auditMark(ctx)
			Expect(plane.Client().Delete(ctx, rm)).To(Succeed())
			Eventually(ctx, func() bool { return absent(ctx, aConfigMap(ns, "main")) }, soon).
				Should(BeFalse(), "the component is back")
			becomes(ctx, in, "True", "ReconciliationSucceeded")
			Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"install": 1}))
			revision, complete := release(ctx, in)
			Expect([]any{revision, complete}).To(Equal([]any{int32(1), true}))
		}
	})

	It("is still an install after an install that failed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", map[string]string{
			"a.yaml": job("setup", cluster.FateFails, "", hook("pre-install", 0))})))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "HealthCheckFailed", "Job "+ns+"/setup is Failed")
		revision, complete := release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(1), false}))
		mark := auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:2", tree(shopStack, shopChart("2", map[string]string{
			"a.yaml": job("setup", "", "", hook("pre-install", 0)),
			"b.yaml": job("upgrade", "", "", hook("pre-upgrade", 0))})))
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"setup": 1}))
		revision, complete = release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(1), true}))
	})

	It("has the helpers of its hooks only while they are needed", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		const events = "pre-install,pre-upgrade,post-install,post-upgrade"
		templates := func(fate string) map[string]string {
			return map[string]string{
				"account.yaml": account("helper", policy(events, "before-hook-creation,hook-succeeded")),
				"kept.yaml":    account("kept", policy("pre-install,pre-delete", "hook-succeeded")),
				"before.yaml":  job("before", "", "", policy("pre-install,pre-upgrade", "hook-succeeded")),
				"after.yaml":   job("after", fate, "", policy("post-install,post-upgrade", "hook-succeeded")),
			}
		}
		accounts := func() (names []string) {
			GinkgoHelper()
			var list corev1.ServiceAccountList
			Expect(plane.Client().List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			for i := range list.Items {
				if name := list.Items[i].Name; name == "helper" || name == "kept" {
					names = append(names, name)
				}
			}
			return names
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", templates(cluster.FateFails))))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "HealthCheckFailed", "Job "+ns+"/after is Failed")
		Expect(accounts()).To(Equal([]string{"helper", "kept"}), "a hook of the phase has failed")
		publish(ctx, ns, "src", "main@sha1:2", tree(shopStack, shopChart("1", templates(""))))
		atRevision(ctx, in, "main@sha1:2")
		Eventually(ctx, accounts, soon).Should(Equal([]string{"kept"}), "the helper is deleted after the hooks")
		Eventually(ctx, func() []string { return jobsIn(ctx, ns) }, soon).Should(BeEmpty(), "the hooks are deleted")

		By("an upgrade has them again")
		mark := auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:3", tree(shopStack, shopChart("3", templates(""))))
		atRevision(ctx, in, "main@sha1:3")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"before": 1, "after": 1}))
		Eventually(ctx, accounts, soon).Should(Equal([]string{"kept"}), "the helper is deleted after the hooks")
		deleteAndWait(ctx, in)
		Expect(accounts()).To(BeEmpty())
	})

	It("leaves the fields that only an install sets to others", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		templates := map[string]string{"hook.yaml": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: "{{ .Release.Namespace }}-guard"}
webhooks:
- name: guard.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  {{- if not .Release.IsUpgrade }}
  failurePolicy: Ignore
  {{- end }}
  clientConfig: {url: "https://guard.example.com/"}
  objectSelector: {matchLabels: {never: matches}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`}
		var guard *admissionregistrationv1.ValidatingWebhookConfiguration
		guardOf := func(ns string) {
			guard = &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: ns + "-guard"}}
			DeferCleanup(func(ctx SpecContext, o client.Object) { _ = plane.Client().Delete(ctx, o) }, guard)
		}
		setPolicy := func() {
			GinkgoHelper()
			guard.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Fail)
			Expect(plane.Client().Update(ctx, guard, client.FieldOwner("istiod"))).To(Succeed())
		}
		guardOf(ns)
		failurePolicy := func() string {
			GinkgoHelper()
			Expect(get(ctx, guard)).To(Succeed())
			return string(*guard.Webhooks[0].FailurePolicy)
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", templates)))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(failurePolicy()).To(Equal("Ignore"))
		setPolicy()
		mark := auditMark(ctx)
		requestReconcile(ctx, in, "quiet")
		expectNoWrites(ctx, ns, mark, "others own the field")
		Expect(failurePolicy()).To(Equal("Fail"))

		By("an upgrade does not set it either")
		publish(ctx, ns, "src", "main@sha1:2", tree(shopStack, shopChart("2", templates)))
		atRevision(ctx, in, "main@sha1:2")
		Expect(failurePolicy()).To(Equal("Fail"))
		mark = auditMark(ctx)
		requestReconcile(ctx, in, "still quiet")
		expectNoWrites(ctx, ns, mark, "others own the field")

		By("nor does a take-over from Helm")
		ns = namespaceFor(ctx)
		guardOf(ns)
		files := helmChart("1", templates)
		Expect(installWithHelm(ctx, ns, files, "")).To(Succeed())
		Expect(failurePolicy()).To(Equal("Ignore"))
		setPolicy()
		publish(ctx, ns, "src", "main@sha1:1", tree(releasedByHelm, releaseFiles(files, "")))
		in = newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(failurePolicy()).To(Equal("Fail"))
		mark = auditMark(ctx)
		requestReconcile(ctx, in, "quiet after the take-over")
		expectNoWrites(ctx, ns, mark, "others own the field")
	})

	It("is known when the status is lost", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		templates := map[string]string{
			"install.yaml": job("install", "", "", hook("pre-install", 0)),
			"upgrade.yaml": job("upgrade", "", "", hook("pre-upgrade", 0)),
			"seen.yaml": "{{- $found := lookup \"v1\" \"ConfigMap\" .Release.Namespace \"main\" }}\n" +
				"{{- if and .Release.IsUpgrade (not $found) }}{{ fail \"an upgrade needs it\" }}{{ end }}\n",
		}
		sourceForController(ctx, ns, "src", "rebuilt")
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", templates)))
		stop := startController(dedicated("rebuilt"))
		in := newInstall(ctx, ns, "i", forController[*appsv1.KsctlInstall]("rebuilt"), hourly)
		atRevision(ctx, in, "main@sha1:1")
		restart := func(token string, change func()) {
			GinkgoHelper()
			stop()
			forgetStatus(ctx, in)
			change()
			stop = startController(dedicated("rebuilt"))
			requestReconcile(ctx, in, token)
		}
		mark := auditMark(ctx)
		restart("first", func() {})
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobRuns(ctx, mark, ns)).To(BeEmpty(), "the Secret has the record of the release")
		revision, complete := release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(1), true}))

		By("with other content it is the next revision")
		restart("second", func() {
			publish(ctx, ns, "src", "main@sha1:2", tree(shopStack, shopChart("2", templates)))
		})
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"upgrade": 1}))
		revision, _ = release(ctx, in)
		Expect(revision).To(BeEquivalentTo(2))

		By("without the Secret, too, it is an upgrade")
		mark = auditMark(ctx)
		restart("third", func() {
			var secrets corev1.SecretList
			Expect(plane.Client().List(ctx, &secrets, client.InNamespace(ns))).To(Succeed())
			for i := range secrets.Items {
				if secrets.Items[i].Type == generated.SecretType {
					Expect(plane.Client().Delete(ctx, &secrets.Items[i])).To(Succeed())
				}
			}
		})
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"upgrade": 1}))
	})

	It("continues that of Helm which is taken over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		templates := map[string]string{
			"a.yaml": job("upgrade", "", "", hook("pre-upgrade", 0)),
			"b.yaml": job("install", "", "", hook("pre-install", 0)),
			"seen.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seen}\ndata: {release: " +
				"\"{{ .Release.IsUpgrade }} {{ .Release.Revision }}\"}\n",
		}
		files := helmChart("{{ .Values.value }}", templates)
		files["values.yaml"] = "value: one\n"
		Expect(installWithHelm(ctx, ns, files, "value: one\n")).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(releasedByHelm, releaseFiles(files, "")))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobRuns(ctx, mark, ns)).To(BeEmpty(), "nothing has changed")
		revision, complete := release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(1), true}))

		By("also if it waits for a dependency, and is rendered again meanwhile")
		ns = namespaceFor(ctx)
		Expect(installWithHelm(ctx, ns, files, "value: one\n")).To(Succeed())
		again := func(value string) map[string]string {
			out := releaseFiles(files, "")
			out["other/o.yaml"] = configMap("other", value)
			return out
		}
		const withOther = releasedByHelm + "  - {name: other, manifests: [other/]}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(withOther, again("1")))
		mark = auditMark(ctx)
		in = newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways), func(in *appsv1.KsctlInstall) {
			in.Spec.DependsOn = []appsv1.Dependency{{Name: "base"}}
		})
		attempted := func(revision string) {
			GinkgoHelper()
			Eventually(ctx, func() (string, error) {
				err := get(ctx, in)
				return in.Status.LastAttemptedRevision, err
			}, soon, 20*time.Millisecond).Should(Equal(revision), "it is rendered")
			requestReconcile(ctx, in, revision)
		}
		attempted("main@sha1:1")
		publish(ctx, ns, "src", "main@sha1:2", tree(withOther, again("2")))
		attempted("main@sha1:2")
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.DependsOn = nil })
		atRevision(ctx, in, "main@sha1:2")
		Expect(jobRuns(ctx, mark, ns)).To(BeEmpty(), "the chart has not changed")

		By("other values are its next revision")
		ns = namespaceFor(ctx)
		Expect(installWithHelm(ctx, ns, files, "value: two\n")).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(releasedByHelm, releaseFiles(files, "")))
		mark = auditMark(ctx)
		in = newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"upgrade": 1}))
		Expect(getConfigMap(ctx, ns, "seen").Data["release"]).To(Equal("true 2"))
		revision, _ = release(ctx, in)
		Expect(revision).To(BeEquivalentTo(2))
	})

	It("of Helm which the account may not list is followed by an upgrade, with a warning", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		files := helmChart("1", map[string]string{
			"a.yaml": job("upgrade", "", "", hook("pre-upgrade", 0)),
			"b.yaml": job("install", "", "", hook("pre-install", 0)),
		})
		Expect(installWithHelm(ctx, ns, files, "")).To(Succeed())
		Expect(plane.Client().Delete(ctx, &batchv1.Job{ObjectMeta: objectMeta(ns, "install")},
			client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		const unlisted = "unlisted"
		for _, o := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: objectMeta(ns, unlisted)},
			&rbacv1.Role{ObjectMeta: objectMeta(ns, unlisted), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"},
				Resources: []string{"*"}, Verbs: []string{"get", "create", "update", "patch", "delete"}}}},
			&rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, unlisted),
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: unlisted},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: unlisted}}},
		} {
			Expect(plane.Client().Create(ctx, o)).To(Succeed())
		}
		publish(ctx, ns, "src", "main@sha1:1", tree(releasedByHelm, releaseFiles(files, "")))
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways), func(in *appsv1.KsctlInstall) {
			in.Spec.ServiceAccountName = unlisted
		})
		atRevision(ctx, in, "main@sha1:1")
		Expect(jobsIn(ctx, ns)).To(Equal([]string{"upgrade"}))
		revision, complete := release(ctx, in)
		Expect([]any{revision, complete}).To(Equal([]any{int32(2), true}))
		Expect(in.Status.Warnings).To(ContainElement(And(ContainSubstring("the Helm release "+ns+"/my"),
			ContainSubstring("may not list Secrets"))))
	})

	It("keeps a Job for its time to live", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(shopStack, shopChart("1", map[string]string{
			"a.yaml": job("brief", "", "  ttlSecondsAfterFinished: 2\n", hook("pre-install", 0))})))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, func() []string { return jobsIn(ctx, ns) }, soon).Should(BeEmpty(), "its time is over")
		Expect(jobRuns(ctx, mark, ns)).To(Equal(map[string]int{"brief": 1}))
	})
})
