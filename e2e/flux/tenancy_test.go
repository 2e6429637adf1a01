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

// newTenant is a world whose account "team" has the role edit there, and whose Kustomization
// acts as that. PLATFORM in files stands for a namespace of others.
func newTenant(ctx SpecContext, platform string, files map[string]string) world {
	GinkgoHelper()
	ns, err := h.Plane.Namespace(ctx, "tenant")
	Expect(err).NotTo(HaveOccurred())
	Expect(h.Plane.ApplyYAML(ctx, fmt.Appendf(nil, `
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
	Expect(h.Plane.AwaitRight(ctx, cluster.ServiceAccountUser(ns, "team"),
		authorizationv1.ResourceAttributes{Namespace: ns, Verb: "create", Group: "apps.ksctl.com", Resource: "ksctlinstalls"})).To(Succeed(), "our kinds are part of the role")
	all := content(nil)
	for path, content := range files {
		all[path] = strings.ReplaceAll(content, "PLATFORM", platform)
	}
	return newWorldIn(ctx, ns, all)
}

var _ = Describe("A tenant under lockdown", suite.Safety, func() {
	const asTeam = "serviceAccountName: team\n"
	team := strings.ReplaceAll(kinInstall, "serviceAccountName: "+harness.Deployer, "serviceAccountName: team")
	synced := func(install string) map[string]string {
		return map[string]string{"clusters/prod/install.yaml": install}
	}

	It("installs in its namespace, with no more than the role edit", func(ctx SpecContext) {
		w := newTenant(ctx, "", synced(team))
		readyAt(ctx, w.sync(ctx, "cluster", "./clusters/prod", asTeam), w.head(ctx))
		Expect(gone(ctx, configMapOf(w.ns, "extra"))).To(BeFalse())
	}, SpecTimeout(15*time.Minute))

	// What says so, why, and with which words; NS stands for the tenant's namespace.
	DescribeTable("is refused, with nothing written elsewhere, where it", func(ctx SpecContext, files map[string]string, more, kind, reason string, said ...string) {
		platform := newWorld(ctx, content(nil))
		mark, err := h.Plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		w := newTenant(ctx, platform.ns, files)
		w.sync(ctx, "cluster", "./clusters/prod", strings.ReplaceAll(more, "PLATFORM", platform.ns))
		who := map[string]string{"Kustomization": "cluster", "KsctlInstall": "app"}
		for i, s := range said {
			said[i] = strings.NewReplacer("PLATFORM", platform.ns, "NS", w.ns).Replace(s)
		}
		refuses(ctx, w.object(kind, who[kind]), reason, said...)

		for _, name := range []string{"base", "stray", "synced"} {
			Expect(gone(ctx, configMapOf(platform.ns, name))).To(BeTrue())
		}
		Expect(gone(ctx, platform.object("KsctlInstall", "app"))).To(BeTrue())
		requests, err := h.Plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		written := requests.Where(cluster.Write, cluster.In(platform.ns)).Without(cluster.Failed).Without(cluster.DryRun)
		for _, by := range []string{cluster.ServiceAccountUser(fluxNamespace, fluxAccount), cluster.ServiceAccountUser(harness.SystemNamespace, harness.Account)} {
			Expect(written.Where(cluster.By(by))).To(BeEmpty())
		}
	},
		Entry("has an install name a source of another namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "name: fleet", "name: fleet, namespace: PLATFORM", 1)), asTeam,
			"KsctlInstall", "AccessDenied", "GitRepository PLATFORM/fleet", "--no-cross-namespace-refs"),
		Entry("has a Kustomization name a source of another namespace", SpecTimeout(15*time.Minute),
			nil, asTeam+"sourceRef: {kind: GitRepository, name: fleet, namespace: PLATFORM}",
			"Kustomization", "AccessDenied", "GitRepository/PLATFORM/fleet"),
		Entry("has an install name an account of others", SpecTimeout(15*time.Minute), synced(kinInstall), asTeam,
			"KsctlInstall", "ServiceAccountNotFound", "NS/deployer"),
		Entry("has an install name an account by its namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "serviceAccountName: team", "serviceAccountName: PLATFORM:deployer", 1)), asTeam,
			"KsctlInstall", "ServiceAccountNotFound", "NS/PLATFORM:deployer"),
		Entry("has an install name no account", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "  serviceAccountName: team\n", "", 1)), asTeam,
			"KsctlInstall", "ReconciliationFailed", "system:serviceaccount:NS:default", "forbidden"),
		Entry("has a Kustomization name no account", SpecTimeout(15*time.Minute), synced(team), "serviceAccountName: null",
			"Kustomization", "ReconciliationFailed", "system:serviceaccount:NS:default", "forbidden"),
		Entry("has a stack with an object of another namespace", SpecTimeout(15*time.Minute),
			map[string]string{"clusters/prod/install.yaml": team,
				"stacks/app/base/base.yaml": strings.Replace(configMap("stray", "1"), "name: stray", "name: stray, namespace: PLATFORM", 1)}, asTeam,
			"KsctlInstall", "ReconciliationFailed", "system:serviceaccount:NS:team", "PLATFORM", "forbidden"),
		Entry("has a Kustomization with an install of another namespace", SpecTimeout(15*time.Minute),
			synced(strings.Replace(team, "name: app", "name: app, namespace: PLATFORM", 1)), asTeam+"targetNamespace: PLATFORM",
			"Kustomization", "ReconciliationFailed", "system:serviceaccount:NS:team", "PLATFORM", "forbidden"))
})
