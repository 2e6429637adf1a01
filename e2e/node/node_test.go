package node_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
)

const system = "ksctl-gitops"

func get(ctx context.Context, o client.Object) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

// stack returns a stack with a Deployment that serves a greeting, and a Service.
func stack(greeting string) map[string]string {
	return map[string]string{
		"stacks/hello/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: hello}\nspec:\n  " +
			"version: 1.0.0\n  components:\n  - name: app\n    manifests: [app.yaml]\n",
		"stacks/hello/app.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: hello}
spec:
  replicas: 2
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: web
        image: %s
        env: [{name: GREETING, value: %q}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: hello}
spec:
  selector: {app: hello}
  ports: [{port: 80, targetPort: 8080}]
`, webImage, greeting),
	}
}

// pushStack pushes the stack with the tag that the source follows.
func pushStack(ctx context.Context, greeting string) {
	GinkgoHelper()
	_, err := images.Push(ctx, "fleet", "latest", artifacts.Files(stack(greeting)), "main@"+greeting)
	Expect(err).NotTo(HaveOccurred())
}

// leader returns the identity of the lease's holder.
func leader(ctx context.Context) string {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system,
		Name: "ksctl-gitops-leader-election"}}
	if err := get(ctx, lease); err != nil || lease.Spec.HolderIdentity == nil {
		return fmt.Sprint("no holder: ", err)
	}
	return *lease.Spec.HolderIdentity
}

// controllers returns the names of the controller's Ready pods.
func controllers(ctx context.Context) (ready []string, err error) {
	var pods corev1.PodList
	err = h.ControlPlane.Client().
		List(ctx, &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"})
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp.IsZero() {
				ready = append(ready, p.Name)
			}
		}
	}
	return ready, err
}

// serves requests the greeting from the Service's cluster IP, through kube-proxy's rules.
func serves(ctx context.Context, ns string) (string, error) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hello"}}
	if err := get(ctx, service); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+service.Spec.ClusterIP, nil)
	if err != nil {
		return "", err
	}
	req.Close = true // a new connection, so that each request may reach another pod
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// createTeam creates a namespace with a deployer account, a source and an install.
func createTeam(ctx context.Context) *appsv1.KsctlInstall {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	Expect(h.ControlPlane.Client().Create(ctx, ns)).To(Succeed())
	meta := metav1.ObjectMeta{Namespace: ns.Name, Name: harness.Deployer}
	in := harness.NewInstall(ns.Name, "hello")
	in.Spec.SourceRef, in.Spec.Path, in.Spec.Stack = appsv1.SourceRef{Kind: "KsctlSource", Name: "fleet"}, "./stacks",
		"hello"
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns.Name, Name: harness.Deployer}}},
	} {
		Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
	}
	// Wait for the permission before creating the install, whose retry interval is an hour.
	Expect(h.ControlPlane.AwaitPermission(ctx, cluster.ServiceAccountUser(ns.Name, harness.Deployer),
		authorizationv1.ResourceAttributes{Namespace: ns.Name, Verb: "create", Group: "apps",
			Resource: "deployments"})).To(Succeed())
	for _, o := range []client.Object{
		&appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "fleet"},
			Spec: appsv1.KsctlSourceSpec{
				Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: 2 * time.Second}},
				OCI:      &appsv1.OCISource{URL: "oci://" + registryAddress + "/fleet", Insecure: true}}},
		in,
	} {
		Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
	}
	return in
}

var _ = Describe("The chart on a real node", func() {
	It("runs two replicas with leader election, installs a stack that serves HTTP, is upgraded, and is removed "+
		"completely", func(ctx SpecContext) {
		By("installing it where Pod Security is restricted")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system,
			Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		Expect(h.ControlPlane.Client().Create(ctx, ns)).To(Succeed())
		set := []string{"--namespace", system, "--set", "replicas=2", "--set", "resources.requests.cpu=10m", "--set",
			"defaultServiceAccount=" + harness.Deployer}
		command(ctx, helm, append([]string{"install", "ksctl-gitops", oldChart, "--wait", "--timeout", "4m"},
			set...)...)
		Eventually(ctx, controllers, waitTimeout, "1s").Should(HaveLen(2), "both replicas are Ready")
		var first string
		Eventually(ctx, func(g Gomega) {
			ready, err := controllers(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			first = leader(ctx)
			g.Expect(ready).To(ContainElement(pod(first)), "one of them is the leader")
		}, waitTimeout, "1s").Should(Succeed())

		By("installing a stack whose pods serve HTTP")
		pushStack(ctx, "hello")
		in := createTeam(ctx)
		Eventually(ctx, serves, waitTimeout, "1s").WithArguments(in.Namespace).Should(Equal("hello"))
		isReady(ctx, in)

		By("killing the leader")
		command(ctx, h.ControlPlane.Kubectl(), "--namespace", system, "delete", "pod", pod(first), "--grace-period=0",
			"--force")
		pushStack(ctx, "good morning")
		Eventually(ctx, serves, waitTimeout, "1s").WithArguments(in.Namespace).
			Should(Equal("good morning"), "another replica applies the change")
		Eventually(ctx, func(g Gomega) {
			ready, err := controllers(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ready).To(ContainElement(pod(leader(ctx))))
			g.Expect(ready).NotTo(ContainElement(pod(first)))
		}, waitTimeout, "1s").Should(Succeed(), "another replica is the leader")
		isReady(ctx, in)

		By("upgrading to a release with a new field in a CRD")
		Expect(crdFields(ctx)).NotTo(HaveKey(newField))
		var old []string
		Eventually(ctx, func() (list []string, err error) {
			old, err = controllers(ctx)
			return old, err
		}, waitTimeout, "1s").Should(HaveLen(2))
		command(ctx, helm,
			append([]string{"upgrade", "ksctl-gitops", newChart, "--wait", "--timeout", "4m", "--set",
				"flags.concurrent=3"}, set...)...)
		Eventually(ctx, func(g Gomega) {
			after, err := controllers(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after).To(HaveLen(2))
			g.Expect(after).NotTo(ContainElement(BeElementOf(old)))
		}, waitTimeout, "1s").Should(Succeed(), "both pods are new")
		Expect(crdFields(ctx)).To(HaveKey(newField), "CRDs are upgraded with the chart")
		uid := in.UID
		isReady(ctx, in)
		Expect(in.UID).To(Equal(uid), "the upgrade keeps custom resources")
		pushStack(ctx, "good evening")
		Eventually(ctx, serves, waitTimeout, "1s").WithArguments(in.Namespace).Should(Equal("good evening"))

		By("deleting the install, and then uninstalling the chart")
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(get(ctx, in)) }, waitTimeout, "1s").Should(BeTrue())
		Eventually(ctx, func() (int, error) {
			var pods corev1.PodList
			err := h.ControlPlane.Client().List(ctx, &pods, client.InNamespace(in.Namespace))
			return len(pods.Items), err
		}, waitTimeout, "1s").Should(BeZero(), "the pods of the install have ended")
		Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &appsv1.KsctlSource{}, client.InNamespace(in.Namespace))).
			To(Succeed())
		Eventually(ctx, func() (int, error) {
			var left appsv1.KsctlSourceList
			err := h.ControlPlane.Client().List(ctx, &left)
			return len(left.Items), err
		}, waitTimeout, "1s").Should(BeZero())
		command(ctx, helm, "uninstall", "ksctl-gitops", "--namespace", system, "--wait", "--timeout", "4m")
		Eventually(ctx, func() (int, error) {
			var pods corev1.PodList
			err := h.ControlPlane.Client().List(ctx, &pods, client.InNamespace(system))
			return len(pods.Items), err
		}, waitTimeout, "1s").Should(BeZero(), "the controller's pods have ended")
		Expect(command(ctx, h.ControlPlane.Kubectl(), "get", "crd", "ksctlinstalls.apps.ksctl.com", "--output",
			"name")).To(ContainSubstring("ksctlinstalls"), "CRDs stay")
	}, SpecTimeout(20*time.Minute))
})

// pod returns the pod name of a leader's identity, which begins with the host name.
func pod(identity string) string {
	for i, c := range identity {
		if c == '_' {
			return identity[:i]
		}
	}
	return identity
}

func isReady(ctx context.Context, in *appsv1.KsctlInstall) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		err := get(ctx, in)
		c := harness.ReadyCondition(in)
		return string(c.Status) + " " + c.Message, err
	}, waitTimeout, "1s").Should(HavePrefix("True "))
}
