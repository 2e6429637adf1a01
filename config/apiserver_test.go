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
	controllerNamespace = "ksctl-gitops-system"
	timeout             = 2 * time.Minute
)

// The shipped manifests, applied to a real API server with kubectl, as users do.
func TestManifestsOnAPIServer(t *testing.T) {
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
	t.Run("the controller's Pod is admitted", func(t *testing.T) { testPod(t, c) })
	t.Run("permissions", func(t *testing.T) { testPermissions(t, c) })
	t.Run("explain", func(t *testing.T) {
		out := kubectl(t, c, "explain", "ksctlinstalls.spec.drift.ignore.paths")
		if !bytes.Contains(out, []byte("JSON pointers")) {
			t.Errorf("%s", out)
		}
	})
	t.Run("samples", func(t *testing.T) {
		kubectl(t, c, "apply", "--server-side", "--validate=strict", "-k", "samples")
		// The API server adds no defaults, so that a sync tool sees no difference.
		kubectl(t, c, "diff", "--server-side", "-k", "samples")
	})
	t.Run("the objects of a KsctlAutoScaler are accepted", func(t *testing.T) { testAutoscaler(t, c) })
	strict := client.WithFieldValidation(c.Client(), metav1.FieldValidationStrict)
	for _, m := range slices.Concat(rejectedManifests, rejectedAutoscalers) {
		t.Run("refuses "+m.kind+" with "+m.name, func(t *testing.T) { m.testRejected(t, strict) })
	}
	for _, m := range slices.Concat(acceptedManifests, acceptedAutoscalers) {
		t.Run("accepts "+m.kind+" with "+m.name, func(t *testing.T) { m.testAccepted(t, strict) })
	}
	t.Run("the clusterRef of a KsctlAutoScaler is immutable", func(t *testing.T) {
		testClusterRefIsImmutable(t, strict)
	})
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) []byte {
	t.Helper()
	out, err := run(t, c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run runs kubectl with a separate discovery cache for each call, because kinds are added during
// the test.
func run(t *testing.T, c *cluster.Cluster, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Kubectl(),
		append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", t.TempDir()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %v: %w\n%s%s", args, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// awaitKinds waits until discovery has the kinds, which is after the CRDs are Established.
func awaitKinds(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*
		time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		for _, kind := range []string{"ksctlinstalls", "ksctlremoves", "ksctlsources", "ksctlinventories",
			"importstates", "exportstates", "ksctlclusters", "ksctlautoscalers"} {
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

// testPod checks that the controller's Pod was created. Its namespace enforces the restricted Pod
// Security standard, so a Pod that was created complies with it.
func testPod(t *testing.T, c *cluster.Cluster) {
	kubectl(t, c, "-n", controllerNamespace, "rollout", "status", "deployment/ksctl-gitops",
		"--timeout="+timeout.String())
	var ns corev1.Namespace
	if err := c.Client().Get(t.Context(), client.ObjectKey{Name: controllerNamespace}, &ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("labels of the namespace: %v", ns.Labels)
	}
}

// permission is a request that a user may or may not make.
type permission struct {
	user, verb, group, resource, subresource, namespace string
	allowed                                             bool
}

func (r permission) matches(t *testing.T, c *cluster.Cluster) bool {
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

func testPermissions(t *testing.T, c *cluster.Cluster) {
	const apps, states = "apps.ksctl.com", "storage.ksctl.com"
	controller := cluster.ServiceAccountUser(controllerNamespace, "ksctl-gitops")
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
	for _, r := range []permission{
		// The controller reads everything and impersonates service accounts.
		{controller, "watch", "apps", "deployments", "", "team", true},
		{controller, "list", "example.com", "anything", "", "team", true},
		{controller, "impersonate", "", "serviceaccounts", "", "team", true},
		{controller, "impersonate", "", "users", "", "", false},
		{controller, "impersonate", "", "groups", "", "", false},
		// It writes its own objects.
		{controller, "patch", apps, "ksctlinstalls", "status", "team", true},
		{controller, "patch", apps, "ksctlremoves", "status", "team", true},
		{controller, "create", apps, "ksctlinventories", "", "team", true},
		{controller, "create", apps, "ksctlinstalls", "", "team", true}, // the installs of a clusterSelector
		{controller, "delete", apps, "ksctlinstalls", "", "team", true},
		{controller, "patch", states, "importstates", "status", "team", true},
		{controller, "patch", states, "exportstates", "status", "team", true},
		{controller, "create", "", "secrets", "", controllerNamespace, true},
		{controller, "update", "coordination.k8s.io", "leases", "", controllerNamespace, true},
		// It writes nothing else.
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
		// The aggregation into the roles view and edit takes a moment.
		err := wait.PollUntilContextTimeout(t.Context(), 50*
			time.Millisecond, timeout, true, func(context.Context) (bool, error) {
			return r.matches(t, c), nil
		})
		if err != nil {
			t.Errorf("the API server does not agree with %+v", r)
		}
	}
}
