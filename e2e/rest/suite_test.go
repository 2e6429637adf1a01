// Package rest_test sends requests to the REST endpoint of the controller.
package rest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

// group is the API group of the kind Shop.
const group = "shops.example.com"

// gitPassword is that of the account that may push.
const gitPassword = "password-of-the-endpoint"

var (
	h       *harness.Harness
	plane   *cluster.Cluster
	scanner = &leakscan.Scanner{}
	// platform is the namespace of the sources, team that of the objects and of the accounts.
	platform, team string
	// apps is the repository that changes are committed to.
	apps *gitserver.Repo
	// committing is an endpoint with a repository, passing one without.
	committing, passing endpoint
	// certFile has the certificate of both.
	certFile string
)

func TestREST(t *testing.T) {
	suite.Run(t, "REST")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Audit: true, Nodes: -1, NoScheduler: true}, scanner)
	plane = h.ControlPlane
	Expect(harness.AllowKinds(ctx, plane, group)).To(Succeed())
	platform, team = framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "team")
	createAccounts(ctx)
	createRepository(ctx)
	writeCertificate()
	committing.addr, passing.addr = freeAddress(), freeAddress()
	framework.StartController(h, endpointFlags(committing, "--kind-groups="+group,
		"--rest-git-source=KsctlSource/"+platform+"/apps", "--rest-git-path=objects",
		"--rest-git-secret="+platform+"/push")...)
	framework.StartController(h, endpointFlags(passing, "--owner-id=passing", "--watch-label-selector=rest=passing")...)
	publishShop(ctx)
	for _, e := range []endpoint{committing, passing} {
		Eventually(ctx, func() error {
			_, err := e.try(ctx, "editor", "GET", "/openapi/v3", "")
			return err
		}, soon).Should(Succeed(), "the endpoint answers")
	}
}, NodeTimeout(10*time.Minute))

func freeAddress() string {
	GinkgoHelper()
	addr, err := cluster.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return addr
}

// writeCertificate writes the certificate of the endpoints.
func writeCertificate() {
	GinkgoHelper()
	content, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	certFile = filepath.Join(dir, "tls.crt")
	Expect(os.WriteFile(certFile, content, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
}

func endpointFlags(e endpoint, flags ...string) []string {
	return append([]string{"--rest-addr=" + e.addr, "--rest-cert-file=" + certFile,
		"--rest-key-file=" + filepath.Join(filepath.Dir(certFile), "tls.key")}, flags...)
}

// accounts are accounts of a namespace, with their role.
const accounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: editor, namespace: TEAM}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: TEAM}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: TEAM}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: editor, namespace: TEAM}
rules:
- {apiGroups: [shops.example.com], resources: [shops], verbs: [get, create, update, patch, delete]}
- {apiGroups: [apps.ksctl.com], resources: [ksctlinstalls], verbs: [get, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: TEAM}
rules:
- {apiGroups: [shops.example.com], resources: [shops], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor, namespace: TEAM}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: editor}
subjects: [{kind: ServiceAccount, name: editor, namespace: TEAM}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: TEAM}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: TEAM}]
`

// tokens are the tokens of the accounts.
var tokens = map[string]string{"": "", "invalid": "invalid-token-of-nobody"}

// createAccounts creates the accounts, and their tokens.
func createAccounts(ctx context.Context) {
	GinkgoHelper()
	Expect(plane.ApplyYAML(ctx, []byte(strings.ReplaceAll(accounts, "TEAM", team)))).To(Succeed())
	for _, name := range []string{"editor", "viewer", "stranger"} {
		cfg, err := plane.ConfigFor(ctx, team, name)
		Expect(err).NotTo(HaveOccurred())
		tokens[name] = scanner.AddSecret(cfg.BearerToken)
	}
	for name, verb := range map[string]string{"editor": "delete", "viewer": "get"} {
		Expect(plane.AwaitPermission(ctx, user(name), authorizationv1.ResourceAttributes{Verb: verb, Group: group,
			Resource: "shops", Namespace: team})).To(Succeed())
	}
}

// user returns the name of the user of an account.
func user(account string) string { return cluster.ServiceAccountUser(team, account) }

// updateHook refuses commits by their message, as the policy of a server. For another message,
// another writer is faster once.
const updateHook = `#!/bin/sh
messages=$(git log --format=%B "$2..$3")
case $messages in
*'against the policy'*)
  echo "policy: this change is refused" >&2
  exit 1;;
*'lose the first push'*)
  mkdir raced 2>/dev/null || exit 0
  unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
  export GIT_AUTHOR_NAME=e2e GIT_AUTHOR_EMAIL=e2e@example.com GIT_COMMITTER_NAME=e2e GIT_COMMITTER_EMAIL=e2e@example.com
  git update-ref refs/heads/main "$(git commit-tree -p "$2" -m 'another writer' "$2^{tree}")";;
esac
`

// createRepository creates the repository, with the source and the Secret of the endpoint.
func createRepository(ctx context.Context) {
	GinkgoHelper()
	server := framework.GitServer(gitserver.WithBasicAuth("endpoint", scanner.AddSecret(gitPassword)))
	var err error
	apps, err = server.NewRepo(ctx, "team/apps")
	Expect(err).NotTo(HaveOccurred())
	_, err = apps.Commit(ctx, map[string]string{"README.md": "the objects of the team\n"}, "one")
	Expect(err).NotTo(HaveOccurred())
	//nolint:gosec // a program
	Expect(os.WriteFile(filepath.Join(apps.Dir(), "hooks", "update"), []byte(updateHook), 0o700)).To(Succeed())
	Expect(plane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: platform, Name: "push"},
		StringData: map[string]string{"username": "endpoint", "password": gitPassword}})).To(Succeed())
	source := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: platform, Name: "apps"},
		Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true}, Git: &appsv1.GitSource{URL: apps.URL()}}}
	Expect(plane.Client().Create(ctx, source)).To(Succeed())
}

const shopStack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: shop}
spec:
  version: 1.0.0
  parameters: {schema: {properties: {host: {type: string}, replicas: {type: integer}}}}
  components:
  - name: main
    manifests: [main.yaml]
    fields:
    - {target: {kind: ConfigMap}, path: data.host, value: stack.host}
  serves:
    group: shops.example.com
    kind: Shop
    versions: [{name: v1alpha1}]
    schema:
      type: object
      required: [host]
      properties: {host: {type: string}, replicas: {type: integer, default: 1}}
    install:
      retryInterval: 1s
      components: [{name: main, namePrefix: {expr: self.metadata.name + '-'}}]
      parameters: {host: {expr: self.spec.host}, replicas: {expr: self.spec.replicas}}
`

const shopObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {host: ""}
`

// publishShop publishes the kind Shop.
func publishShop(ctx context.Context) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, platform, "fleet", "main@sha1:1", artifacts.Files(map[string]string{
		"stacks/shop/stack.yaml": shopStack, "stacks/shop/main.yaml": shopObjects}))).To(Succeed())
	k := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: appsv1.KsctlKindSpec{Path: "stacks", Stack: "shop", ServiceAccountName: harness.Deployer,
			DeletionPolicy: appsv1.KindDeletionDelete,
			SourceRef:      appsv1.SourceRef{Kind: "KsctlSource", Namespace: platform, Name: "fleet"}}}
	Expect(plane.Client().Create(ctx, k)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(plane.Client().Delete(ctx, k)).To(Succeed())
		Eventually(ctx, func() error {
			return client.IgnoreNotFound(plane.Client().Get(ctx, client.ObjectKeyFromObject(k), k))
		}, soon).Should(Succeed())
	})
	Eventually(ctx, func() (bool, error) {
		err := plane.Client().Get(ctx, client.ObjectKeyFromObject(k), k)
		return apimeta.IsStatusConditionTrue(k.Status.Conditions, appsv1.ReadyCondition), err
	}, soon).Should(BeTrue(), "the kind is served")
}
