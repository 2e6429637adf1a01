package config_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

const (
	system = "ksctl-gitops-system"
	soon   = 2 * time.Minute
)

// What is shipped, on a real API server, applied as a user does it.
func TestOnACluster(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, c, "apply", "--server-side", "--validate=strict", "-k", "default")
	awaitKinds(t, c)
	t.Run("the controller's pod is admitted", func(t *testing.T) { testPod(t, c) })
	t.Run("rights", func(t *testing.T) { testRights(t, c) })
	t.Run("explain", func(t *testing.T) {
		out := kubectl(t, c, "explain", "ksctlinstalls.spec.drift.ignore.paths")
		if !bytes.Contains(out, []byte("JSON pointers")) {
			t.Errorf("%s", out)
		}
	})
	t.Run("samples", func(t *testing.T) {
		kubectl(t, c, "apply", "--server-side", "--validate=strict", "-k", "samples")
		// Nothing was added to what was written, so that a sync tool sees no difference.
		kubectl(t, c, "diff", "--server-side", "-k", "samples")
	})
	t.Run("what a KsctlAutoScaler installs", func(t *testing.T) { testAutoscaler(t, c) })
	strict := client.WithFieldValidation(c.Client(), metav1.FieldValidationStrict)
	for _, m := range slices.Concat(refused, refusedAutoscalers) {
		t.Run("refuses "+m.kind+" with "+m.name, func(t *testing.T) { m.testRefused(t, strict) })
	}
	for _, m := range slices.Concat(accepted, acceptedAutoscalers) {
		t.Run("accepts "+m.kind+" with "+m.name, func(t *testing.T) { m.testAccepted(t, strict) })
	}
	t.Run("the cluster of a KsctlAutoScaler stays", func(t *testing.T) { testClusterStays(t, strict) })
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) []byte {
	t.Helper()
	out, err := run(t, c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run has a cache of its own for each call: kinds come up while the test runs.
func run(t *testing.T, c *cluster.Cluster, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", t.TempDir()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %v: %w\n%s%s", args, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// awaitKinds waits until the CRDs are served: discovery lags their condition.
func awaitKinds(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		for _, kind := range []string{"ksctlinstalls", "ksctlremoves", "ksctlsources", "ksctlinventories", "importstates", "exportstates", "ksctlclusters", "ksctlautoscalers"} {
			if _, last = run(t, c, "explain", kind+".metadata"); last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}

// Its namespace enforces the restricted Pod Security standard, so a pod that
// came into being meets it.
func testPod(t *testing.T, c *cluster.Cluster) {
	kubectl(t, c, "-n", system, "rollout", "status", "deployment/ksctl-gitops", "--timeout="+soon.String())
	var ns corev1.Namespace
	if err := c.Client().Get(t.Context(), client.ObjectKey{Name: system}, &ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("labels of the namespace: %v", ns.Labels)
	}
}

// right is one thing that somebody may or may not do.
type right struct {
	user, verb, group, resource, subresource, namespace string
	allowed                                             bool
}

func (r right) holds(t *testing.T, c *cluster.Cluster) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: r.resource,
			Subresource: r.subresource, Namespace: r.namespace, Name: "x"},
	}}
	if err := c.Client().Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed == r.allowed
}

func testRights(t *testing.T, c *cluster.Cluster) {
	const apps, states = "apps.ksctl.com", "storage.ksctl.com"
	controller := cluster.ServiceAccountUser(system, "ksctl-gitops")
	if err := c.ApplyYAML(t.Context(), []byte(`
kind: List
apiVersion: v1
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: team}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: viewer, namespace: team}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: editor, namespace: team}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}]
`)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []right{
		// The controller reads everything and acts as accounts.
		{controller, "watch", "apps", "deployments", "", "team", true},
		{controller, "list", "example.com", "anything", "", "team", true},
		{controller, "impersonate", "", "serviceaccounts", "", "team", true},
		{controller, "impersonate", "", "users", "", "", false},
		{controller, "impersonate", "", "groups", "", "", false},
		// It writes what is its own.
		{controller, "patch", apps, "ksctlinstalls", "status", "team", true},
		{controller, "patch", apps, "ksctlremoves", "status", "team", true},
		{controller, "create", apps, "ksctlinventories", "", "team", true},
		{controller, "create", apps, "ksctlinstalls", "", "team", true}, // for the clusters that one selects
		{controller, "delete", apps, "ksctlinstalls", "", "team", true},
		{controller, "patch", states, "importstates", "status", "team", true},
		{controller, "patch", states, "exportstates", "status", "team", true},
		{controller, "create", "", "secrets", "", system, true},
		{controller, "update", "coordination.k8s.io", "leases", "", system, true},
		// And nothing else.
		{controller, "create", "", "secrets", "", "team", false},
		{controller, "patch", "", "configmaps", "", "team", false},
		{controller, "create", "apps", "deployments", "", "team", false},
		{controller, "delete", "", "namespaces", "", "", false},
		{controller, "create", apps, "ksctlremoves", "", "team", false},
		{controller, "create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", false},
		// Users.
		{"viewer", "list", apps, "ksctlinstalls", "", "team", true},
		{"viewer", "get", apps, "ksctlinventories", "", "team", true},
		{"viewer", "create", apps, "ksctlinstalls", "", "team", false},
		{"editor", "get", apps, "ksctlsources", "", "team", true},
		{"editor", "create", apps, "ksctlinstalls", "", "team", true},
		{"editor", "patch", apps, "ksctlsources", "", "team", true},
		{"editor", "create", apps, "ksctlremoves", "", "team", true},
		{"viewer", "create", apps, "ksctlremoves", "", "team", false},
		{"editor", "delete", apps, "ksctlinventories", "", "team", false},
		{"editor", "create", states, "importstates", "", "team", true},
		{"viewer", "get", states, "importstates", "", "team", false},
		{"editor", "create", states, "exportstates", "", "team", true},
		{"viewer", "get", states, "exportstates", "", "team", true},
		{"editor", "patch", apps, "ksctlinstalls", "status", "team", false},
		{"editor", "create", apps, "ksctlinstalls", "", "default", false},
	} {
		// The roles view and edit are put together a moment after ours exist.
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			return r.holds(t, c), nil
		})
		if err != nil {
			t.Errorf("%+v does not hold", r)
		}
	}
}
