package flux_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// newTenant creates a fixture whose account "team" has the ClusterRole edit in the namespace,
// for a Kustomization that impersonates it. PLATFORM in files is replaced by another namespace.
func newTenant(ctx SpecContext, platform string, files map[string]string) fixture {
	GinkgoHelper()
	ns, err := h.ControlPlane.Namespace(ctx, "tenant")
	Expect(err).NotTo(HaveOccurred())
	Expect(h.ControlPlane.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: team, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: team, namespace: %[1]s}]
`, ns))).To(Succeed())
	Expect(h.ControlPlane.AwaitPermission(ctx, cluster.ServiceAccountUser(ns, "team"),
		authorizationv1.ResourceAttributes{Namespace: ns, Verb: "create", Group: "apps.ksctl.com",
			Resource: "ksctlinstalls"})).To(Succeed(), "the role includes our kinds")
	all := content(nil)
	for path, content := range files {
		all[path] = strings.ReplaceAll(content, "PLATFORM", platform)
	}
	return newFixtureIn(ctx, ns, all)
}

var _ = Describe("A tenant under lockdown", suite.Safety, func() {
	const asTeam = "serviceAccountName: team\n"
	team := strings.ReplaceAll(installManifest, "serviceAccountName: "+harness.Deployer, "serviceAccountName: team")
	synced := func(install string) map[string]string {
		return map[string]string{"clusters/prod/install.yaml": install}
	}

	It("installs in its namespace with the ClusterRole edit", func(ctx SpecContext) {
		w := newTenant(ctx, "", synced(team))
		readyAt(ctx, w.sync(ctx, "cluster", "./clusters/prod", asTeam), w.head(ctx))
		Expect(absent(ctx, configMapOf(w.ns, "extra"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	// The entries have the kind that reports the refusal, its reason and texts of its message; NS
	// is replaced by the tenant's namespace.
	DescribeTable("is refused, without a write in another "+
		"namespace, with", func(ctx SpecContext, files map[string]string, more, kind, reason string,
		messages ...string) {
		platform := newFixture(ctx, content(nil))
		mark, err := h.ControlPlane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		w := newTenant(ctx, platform.ns, files)
		w.sync(ctx, "cluster", "./clusters/prod", strings.ReplaceAll(more, "PLATFORM", platform.ns))
		who := map[string]string{"Kustomization": "cluster", "KsctlInstall": "app"}
		for i, s := range messages {
			messages[i] = strings.NewReplacer("PLATFORM", platform.ns, "NS", w.ns).Replace(s)
		}
		notReady(ctx, w.object(kind, who[kind]), reason, messages...)

		for _, name := range []string{"base", "stray", "synced"} {
			Expect(absent(ctx, configMapOf(platform.ns, name))).To(BeTrue())
		}
		Expect(absent(ctx, platform.object("KsctlInstall", "app"))).To(BeTrue())
		requests, err := h.ControlPlane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		written := requests.Where(cluster.Write, cluster.InNamespace(platform.ns)).Without(cluster.Failed).
			Without(cluster.DryRun)
		for _, by := range []string{cluster.ServiceAccountUser(fluxNamespace, fluxAccount),
			cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount)} {
			Expect(written.Where(cluster.ByUser(by))).To(BeEmpty())
		}
	},
		Entry("an install of a source in another namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "name: fleet", "name: fleet, namespace: PLATFORM", 1)), asTeam,
			"KsctlInstall", "AccessDenied", "GitRepository PLATFORM/fleet", "--no-cross-namespace-refs"),
		Entry("a Kustomization of a source in another namespace", SpecTimeout(15*time.Minute),
			nil, asTeam+"sourceRef: {kind: GitRepository, name: fleet, namespace: PLATFORM}",
			"Kustomization", "AccessDenied", "GitRepository/PLATFORM/fleet"),
		Entry("an install with an account of another namespace", SpecTimeout(15*time.Minute), synced(installManifest),
			asTeam,
			"KsctlInstall", "ServiceAccountNotFound", "NS/deployer"),
		Entry("an install with an account and its namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "serviceAccountName: team", "serviceAccountName: PLATFORM:deployer", 1)),
			asTeam,
			"KsctlInstall", "ServiceAccountNotFound", "NS/PLATFORM:deployer"),
		Entry("an install without an account", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "  serviceAccountName: team\n", "", 1)), asTeam,
			"KsctlInstall", "ReconciliationFailed", "system:serviceaccount:NS:default", "forbidden"),
		Entry("a Kustomization without an account", SpecTimeout(15*time.Minute), synced(team),
			"serviceAccountName: null",
			"Kustomization", "ReconciliationFailed", "system:serviceaccount:NS:default", "forbidden"),
		Entry("a stack with an object in another namespace", SpecTimeout(15*time.Minute),
			map[string]string{"clusters/prod/install.yaml": team,
				"stacks/app/base/base.yaml": strings.Replace(configMap("stray", "1"), "name: stray",
					"name: stray, namespace: PLATFORM", 1)}, asTeam,
			"KsctlInstall", "ReconciliationFailed", "system:serviceaccount:NS:team", "PLATFORM", "forbidden"),
		Entry("a Kustomization with an install in another namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "name: app", "name: app, namespace: PLATFORM", 1)),
			asTeam+"targetNamespace: PLATFORM",
			"Kustomization", "ReconciliationFailed", "system:serviceaccount:NS:team", "PLATFORM", "forbidden"))
})
