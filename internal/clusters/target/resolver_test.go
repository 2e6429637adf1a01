package target

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
)

const access = `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}},{"name":"y","context":{"cluster":"y","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":"https://x.example.com"}},{"name":"y","cluster":{"server":"https://y.example.com"}}],"users":[{"name":"x","user":{"token":"s3cr3t"}}]}`

// newTestResolver returns a resolver and a client of a local cluster with these objects, and the
// number of reads of Secrets. denied is the error of these reads.
func newTestResolver(t *testing.T, denied error,
	objects ...client.Object) (resolver *Resolver, here *engine.Client, reads func() int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.KsctlCluster{}).Build()
	var secrets []runtime.Object
	for _, o := range objects {
		if s, ok := o.(*corev1.Secret); ok {
			secrets = append(secrets, s.DeepCopy())
		}
		if c, ok := o.(*clusterv1.KsctlCluster); ok {
			if err := cache.Status().Update(t.Context(), c.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
	}
	dynamic := fakedynamic.NewSimpleDynamicClient(scheme, secrets...)
	n := 0
	dynamic.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		n++
		return denied != nil, nil, denied
	})
	return &Resolver{Cache: cache, Local: &engine.Target{ClusterID: plan.LocalCluster},
			Clusters: NewClusters(Options{Installation: "test"})},
		&engine.Client{Interface: dynamic}, func() int { return n }
}

func secretWith(ns, name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: "1"},
		Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func clusterWith(ns, name, secret, key string) *clusterv1.KsctlCluster {
	return &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Status: clusterv1.KsctlClusterStatus{KubeConfigSecret: secret, KubeConfigKey: key}}
}

func userOf(spec appsv1.TargetCluster, here *engine.Client) User {
	key := plan.OwnerKey{Installation: "test", Cluster: ID("team", &spec), Kind: "KsctlInstall", Namespace: "team",
		Name: "app"}
	return User{Key: key, Spec: &spec, Account: "deployer", LocalClient: here}
}

func byRef(name string) appsv1.TargetCluster {
	return appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: name}}
}

func bySecret(name, key string) appsv1.TargetCluster {
	return appsv1.TargetCluster{KubeConfig: &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: name,
		Key: key}}}
}

func TestResolve(t *testing.T) {
	going := clusterWith("team", "going", "good", "value")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{}, []string{appsv1.Finalizer}
	going.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	elsewhere := appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod", Namespace: "other"}}
	objects := []client.Object{
		secretWith("team", "good", map[string]string{"value": access}),
		secretWith("other", "good", map[string]string{"value": access}),
		secretWith("team", "hostile",
			map[string]string{"value": strings.Replace(access, `"token":"s3cr3t"`, `"exec":{"command":"x"}`, 1)}),
		clusterWith("team", "prod", "good", "value"), clusterWith("team", "new", "", ""),
		clusterWith("team", "bare", "missing", "value"),
		clusterWith("other", "prod", "good", "value"), going,
	}
	for name, tc := range map[string]struct {
		spec          appsv1.TargetCluster
		change        func(*User)
		own           bool
		reason, error string
	}{
		"local cluster":     {},
		"cluster":           {spec: byRef("prod"), error: "is being probed"},
		"kubeconfig":        {spec: bySecret("good", ""), error: "is being probed"},
		"another namespace": {spec: elsewhere, error: "KsctlCluster other/prod is being probed"},
		"another namespace, not allowed": {spec: elsewhere, own: true, reason: appsv1.AccessDeniedReason,
			error: "namespace other"},
		"unknown cluster": {spec: byRef("none"), reason: appsv1.ClusterNotFoundReason,
			error: "KsctlCluster team/none does not exist"},
		"cluster without kubeconfig": {spec: byRef("new"), reason: appsv1.ClusterNotReadyReason,
			error: "has no kubeconfig yet"},
		"cluster with deleted Secret": {spec: byRef("bare"), reason: appsv1.ClusterNotFoundReason,
			error: "Secret team/missing with the kubeconfig does not exist"},
		"unknown key": {spec: bySecret("good", "config"), reason: appsv1.ClusterNotFoundReason,
			error: "Secret team/good has no key config"},
		"hostile kubeconfig": {spec: bySecret("hostile", ""), reason: appsv1.KubeConfigRefusedReason,
			error: "runs a program"},
		"deleting cluster, in use": {spec: byRef("going"), error: "is being probed"},
		"deleting cluster, empty": {spec: byRef("going"), change: func(u *User) {
			u.Empty = true
		}, reason: appsv1.ClusterNotReadyReason, error: "is being deleted"},
		"cluster changed in the spec": {spec: byRef("prod"), change: func(u *User) {
			u.Key.Cluster = "team.old"
		}, reason: appsv1.ClusterChangedReason,
			error: "the installed objects are on KsctlCluster team/old, but the spec now names KsctlCluster team/prod"},
	} {
		t.Run(name, func(t *testing.T) {
			resolver, here, _ := newTestResolver(t, nil, objects...)
			resolver.NoCrossNamespace = tc.own
			u := userOf(tc.spec, here)
			if tc.change != nil {
				tc.change(&u)
			}
			got, err := resolver.Resolve(t.Context(), u)
			if tc.error == "" {
				if err != nil || got.Target != resolver.Local || got.Client != here {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			var known *reconcile.StepError
			var unreachable *UnreachableError
			switch {
			case err == nil || !strings.Contains(err.Error(), tc.error):
				t.Errorf("got %v, want %s", err, tc.error)
			case strings.Contains(err.Error(), "s3cr3t"):
				t.Errorf("the error quotes a secret: %v", err)
			case tc.reason == "" && !errors.As(err, &unreachable):
				t.Errorf("got an error of type %T", err)
			case tc.reason != "" && (!errors.As(err, &known) || known.Reason != tc.reason):
				t.Errorf("got an error of type %T: %v", err, err)
			}
		})
	}
}

func TestResolveCachesKubeconfigPerUser(t *testing.T) {
	resolver, here, reads := newTestResolver(t, nil, secretWith("team", "good", map[string]string{"value": access}),
		clusterWith("team", "prod", "good", "value"))
	u := userOf(byRef("prod"), here)
	var unreachable *UnreachableError
	for range 3 {
		if _, err := resolver.Resolve(t.Context(), u); !errors.As(err, &unreachable) {
			t.Fatal(err)
		}
	}
	if reads() != 1 || len(resolver.Clusters.byKey) != 1 {
		t.Errorf("read %d times, %d clusters", reads(), len(resolver.Clusters.byKey))
	}
	other := u
	other.Key.Name, other.Account = "other", "somebody"
	if _, err := resolver.Resolve(t.Context(), other); !errors.As(err, &unreachable) {
		t.Fatal(err)
	}
	if reads() != 2 || len(resolver.Clusters.byKey) != 1 {
		t.Errorf("each user must read the Secret with its own permissions, and they must share one cluster: read %d "+
			"times, %d clusters", reads(), len(resolver.Clusters.byKey))
	}
	resolver.Forget(u.Key)
	resolver.Forget(other.Key)
	for _, x := range resolver.Clusters.byKey {
		if len(x.users) != 0 || x.idleSince.IsZero() {
			t.Error("a cluster without users is not idle")
		}
		x.idleSince = x.idleSince.Add(-2 * idleTime)
	}
	resolver.Clusters.removeIdle()
	if len(resolver.Clusters.byKey)+len(resolver.Clusters.byTarget)+len(resolver.Clusters.byUser) != 0 {
		t.Error("entries remain after the idle cluster was removed")
	}
	resolver.accesses.Range(func(user, _ any) bool {
		t.Errorf("the kubeconfig of %v remains", user)
		return true
	})
}

func TestResolveNeedsPermissionToReadSecret(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "good", errors.New("no"))
	resolver, here, _ := newTestResolver(t, denied, secretWith("team", "good", map[string]string{"value": access}))
	_, err := resolver.Resolve(t.Context(), userOf(bySecret("good", ""), here))
	if !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(),
			"ServiceAccount team/deployer may not get: only accounts that may get it can use the cluster") {
		t.Errorf("got %v", err)
	}
	if out, ok := Outcome(err, "r").(reconcile.Retry); !ok || out.Revision != "r" {
		t.Errorf("got %+v", Outcome(err, "r"))
	}
}

func TestOutcome(t *testing.T) {
	if _, ok := Outcome(&UnreachableError{Cluster: "team.prod"}, "").(reconcile.Deferred); !ok {
		t.Error("the outcome is not Deferred while the cluster is being probed")
	}
	if out, ok := Outcome(&UnreachableError{Cluster: "team.prod", Err: errors.New("down")},
		"").(reconcile.Retry); !ok || out.Reason != appsv1.ClusterUnreachableReason {
		t.Errorf("%+v", out)
	}
	if out, ok := Outcome(notReadyError(types.NamespacedName{Name: "c"}, "x"), "").(reconcile.Waiting); !ok ||
		out.Reason != appsv1.ClusterNotReadyReason {
		t.Errorf("%+v", out)
	}
	if out, ok := Outcome(newError(appsv1.ClusterChangedReason, "x"), "").(reconcile.Stalled); !ok ||
		out.Reason != appsv1.ClusterChangedReason {
		t.Errorf("%+v", out)
	}
}
