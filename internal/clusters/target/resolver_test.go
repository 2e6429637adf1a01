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
	fakedynamic "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

const access = `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}},{"name":"y","context":{"cluster":"y","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":"https://x.example.com"}},{"name":"y","cluster":{"server":"https://y.example.com"}}],"users":[{"name":"x","user":{"token":"s3cr3t"}}]}`

// targets are some of a cluster with certain objects, and how often Secrets were read there.
func targetsOf(t *testing.T, denied error, objects ...client.Object) (targets *Targets, here *engine.Client, reads func() int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&clusterv1.KsctlCluster{}).Build()
	var there []runtime.Object
	for _, o := range objects {
		if s, ok := o.(*corev1.Secret); ok {
			there = append(there, s.DeepCopy())
		}
		if c, ok := o.(*clusterv1.KsctlCluster); ok {
			if err := cache.Status().Update(t.Context(), c.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
	}
	dynamic := fakedynamic.NewSimpleDynamicClient(scheme, there...)
	n := 0
	dynamic.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		n++
		return denied != nil, nil, denied
	})
	return &Targets{Cache: cache, Local: &engine.Target{ClusterID: engine.LocalCluster}, Clusters: NewClusters(Options{Installation: "test"})},
		&engine.Client{Interface: dynamic}, func() int { return n }
}

func secretWith(ns, name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: "1"}, Data: map[string][]byte{}}
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
	key := engine.OwnerKey{Installation: "test", Cluster: ID("team", &spec), Kind: "KsctlInstall", Namespace: "team", Name: "app"}
	return User{Key: key, Spec: &spec, Account: "deployer", Here: here}
}

func byRef(name string) appsv1.TargetCluster {
	return appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: name}}
}

func bySecret(name, key string) appsv1.TargetCluster {
	return appsv1.TargetCluster{KubeConfig: &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: name, Key: key}}}
}

func TestOf(t *testing.T) {
	going := clusterWith("team", "going", "good", "value")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{}, []string{appsv1.Finalizer}
	going.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	elsewhere := appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod", Namespace: "other"}}
	objects := []client.Object{
		secretWith("team", "good", map[string]string{"value": access}), secretWith("other", "good", map[string]string{"value": access}),
		secretWith("team", "hostile", map[string]string{"value": strings.Replace(access, `"token":"s3cr3t"`, `"exec":{"command":"x"}`, 1)}),
		clusterWith("team", "prod", "good", "value"), clusterWith("team", "new", "", ""), clusterWith("team", "bare", "missing", "value"),
		clusterWith("other", "prod", "good", "value"), going,
	}
	for name, tc := range map[string]struct {
		spec          appsv1.TargetCluster
		change        func(*User)
		own           bool
		reason, error string
	}{
		"here":                           {},
		"a cluster":                      {spec: byRef("prod"), error: "is being asked whether it answers"},
		"a kubeconfig":                   {spec: bySecret("good", ""), error: "is being asked whether it answers"},
		"another namespace":              {spec: elsewhere, error: "KsctlCluster other/prod is being asked"},
		"another namespace, where not":   {spec: elsewhere, own: true, reason: AccessDeniedReason, error: "namespace other"},
		"no such cluster":                {spec: byRef("none"), reason: ClusterNotFoundReason, error: "KsctlCluster team/none does not exist"},
		"one that has no kubeconfig yet": {spec: byRef("new"), reason: ClusterNotReadyReason, error: "has no kubeconfig yet"},
		"one whose Secret is gone":       {spec: byRef("bare"), reason: ClusterNotFoundReason, error: "Secret team/missing, which should have the kubeconfig, does not exist"},
		"no such key":                    {spec: bySecret("good", "config"), reason: ClusterNotFoundReason, error: "Secret team/good has no key config"},
		"a hostile kubeconfig":           {spec: bySecret("hostile", ""), reason: KubeConfigRefusedReason, error: "runs a program"},
		"one that goes, with something":  {spec: byRef("going"), error: "is being asked whether it answers"},
		"one that goes, with nothing":    {spec: byRef("going"), change: func(u *User) { u.Empty = true }, reason: ClusterNotReadyReason, error: "is being deleted"},
		"another than what is installed": {spec: byRef("prod"), change: func(u *User) { u.Key.Cluster = "team.old" }, reason: ClusterChangedReason,
			error: "what is installed is on KsctlCluster team/old, and the spec names KsctlCluster team/prod by now"},
	} {
		t.Run(name, func(t *testing.T) {
			targets, here, _ := targetsOf(t, nil, objects...)
			targets.NoCrossNamespace = tc.own
			u := userOf(tc.spec, here)
			if tc.change != nil {
				tc.change(&u)
			}
			got, err := targets.Of(t.Context(), u)
			if tc.error == "" {
				if err != nil || got.Target != targets.Local || got.Client != here {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			var known *Error
			var unreachable *UnreachableError
			switch {
			case err == nil || !strings.Contains(err.Error(), tc.error):
				t.Errorf("got %v, want %s", err, tc.error)
			case strings.Contains(err.Error(), "s3cr3t"):
				t.Errorf("it tells: %v", err)
			case tc.reason == "" && !errors.As(err, &unreachable):
				t.Errorf("of type %T", err)
			case tc.reason != "" && (!errors.As(err, &known) || known.Reason != tc.reason):
				t.Errorf("of type %T: %v", err, err)
			}
		})
	}
}

func TestOfReadsAKubeconfigOnce(t *testing.T) {
	targets, here, reads := targetsOf(t, nil, secretWith("team", "good", map[string]string{"value": access}), clusterWith("team", "prod", "good", "value"))
	u := userOf(byRef("prod"), here)
	var unreachable *UnreachableError
	for range 3 {
		if _, err := targets.Of(t.Context(), u); !errors.As(err, &unreachable) {
			t.Fatal(err)
		}
	}
	if reads() != 1 || len(targets.Clusters.byKey) != 1 {
		t.Errorf("read %d times, %d clusters", reads(), len(targets.Clusters.byKey))
	}
	other := u
	other.Key.Name, other.Account = "other", "somebody"
	if _, err := targets.Of(t.Context(), other); !errors.As(err, &unreachable) {
		t.Fatal(err)
	}
	if reads() != 2 || len(targets.Clusters.byKey) != 1 {
		t.Errorf("each user reads it with its own rights, and they share what is kept: read %d times, %d clusters", reads(), len(targets.Clusters.byKey))
	}
	targets.Forget(u.Key)
	targets.Forget(other.Key)
	for _, x := range targets.Clusters.byKey {
		if len(x.users) != 0 || x.idleSince.IsZero() {
			t.Error("it is used by nobody, and is not idle")
		}
		x.idleSince = x.idleSince.Add(-2 * idleTime)
	}
	targets.Clusters.tidy()
	if len(targets.Clusters.byKey)+len(targets.Clusters.byTarget)+len(targets.Clusters.of)+len(targets.memos) != 0 {
		t.Error("something is left of it")
	}
}

func TestOfNeedsTheRightToReadTheKubeconfig(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "good", errors.New("no"))
	targets, here, _ := targetsOf(t, denied, secretWith("team", "good", map[string]string{"value": access}))
	_, err := targets.Of(t.Context(), userOf(bySecret("good", ""), here))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ServiceAccount team/deployer may not get: whoever may get it may use the cluster") {
		t.Errorf("got %v", err)
	}
	if out, ok := Outcome(err, "r").(reconcile.Retry); !ok || out.Revision != "r" {
		t.Errorf("got %+v", Outcome(err, "r"))
	}
}

func TestOutcome(t *testing.T) {
	if _, ok := Outcome(&UnreachableError{Cluster: "team.prod"}, "").(reconcile.Deferred); !ok {
		t.Error("while it is being asked nothing is said")
	}
	if out, ok := Outcome(&UnreachableError{Cluster: "team.prod", Err: errors.New("down")}, "").(reconcile.Retry); !ok || out.Reason != ClusterUnreachableReason {
		t.Errorf("%+v", out)
	}
	if out, ok := Outcome(notReady("x"), "").(reconcile.Waiting); !ok || out.Reason != ClusterNotReadyReason {
		t.Errorf("%+v", out)
	}
	if out, ok := Outcome(fail(ClusterChangedReason, "x"), "").(reconcile.Stalled); !ok || out.Reason != ClusterChangedReason {
		t.Errorf("%+v", out)
	}
}
