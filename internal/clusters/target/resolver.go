package target

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

// Targets finds the cluster that an object acts on.
type Targets struct {
	// Cache has KsctlClusters, and the metadata of Secrets; Direct asks the API server.
	Cache, Direct client.Reader
	// Local is the cluster that the controller runs in, Clusters are the others.
	Local    *engine.Target
	Clusters *Clusters
	// NoCrossNamespace refuses KsctlClusters of other namespaces.
	NoCrossNamespace bool
	// AllowInsecure takes kubeconfigs that do not verify who answers.
	AllowInsecure bool

	mu sync.Mutex
	// memos are what users read last.
	memos map[string]memo
}

// memo is a kubeconfig, what it was read from and when.
type memo struct {
	from   string
	at     time.Time
	access *kubeconfig.Access
	key    key
}

// memoTime is how long a kubeconfig is used before it is read again: whoever may not read it
// any more is noticed, too.
const memoTime = 5 * time.Minute

// User is who acts on a cluster.
type User struct {
	Key engine.OwnerKey
	// Spec says which cluster.
	Spec *appsv1.TargetCluster
	// Account in the namespace whose rights Here has, a client of this cluster.
	Account string
	Here    *engine.Client
	// Empty is true for one that has nothing there yet. UID is that of the cluster that has
	// what there is, if that is known.
	Empty bool
	UID   string
	// Requested is true when a person asked for a reconcile.
	Requested bool
}

// Aim is a cluster that somebody acts on.
type Aim struct {
	Target *engine.Target
	Client *engine.Client
	// Streams is a client for watches, which have no end of their own.
	Streams *engine.Client
	// UID of the cluster; "": it is this one, or its uid is not known.
	UID string
}

// Of returns the cluster that a user acts on, and a client of it. Its errors are an *Error, an
// *OtherClusterError, an *UnreachableError, or those of requests to this cluster.
func (t *Targets) Of(ctx context.Context, u User) (Aim, error) {
	named := ID(u.Key.Namespace, u.Spec)
	switch {
	case named != u.Key.Cluster:
		return Aim{}, fail(ClusterChangedReason,
			"what is installed is on %s, and the spec names %s by now: nothing is changed on either. Name %[1]s again; to move, remove it there first, with a KsctlRemove or by deleting this object",
			People(u.Key.Cluster), People(named))
	case named == engine.LocalCluster:
		return Aim{Target: t.Local, Client: u.Here, Streams: u.Here}, nil
	}
	m, err := t.access(ctx, u)
	if err != nil {
		var known *Error
		if errors.As(err, &known) && !known.Waits {
			t.Clusters.release(u.Key.String()) // what it knew before is not to be used any more
		}
		return Aim{}, err
	}
	x, err := t.Clusters.use(u.Key.String(), m.key, m.access)
	if err != nil {
		return Aim{}, err
	}
	if err := x.gate.closed(); err != nil {
		if u.Requested {
			x.gate.askNow()
		}
		return Aim{}, err
	}
	uid := x.gate.clusterUID()
	if !u.Empty && u.UID != "" && uid != "" && uid != u.UID {
		return Aim{}, &OtherClusterError{Cluster: named, UID: uid}
	}
	c, err := x.target.Client(nil)
	return Aim{Target: x.target, Client: c, Streams: x.streams, UID: uid}, err
}

// OrLost is an outcome, or that of the cluster not answering: that requests to it do not go through
// any more, or did not, is not the fault of what was asked. Lost is true then.
func (t *Targets) OrLost(target *engine.Target, out reconcile.Outcome, revision string, errs ...error) (_ reconcile.Outcome, lost bool) {
	if retry, failed := out.(reconcile.Retry); failed {
		errs = append(errs, retry.Err)
	}
	if err := t.lost(target, errs); err != nil {
		return Outcome(err, revision), true
	}
	return out, false
}

// lost is why requests to a target do not go through any more, or did not; nil: they do.
func (t *Targets) lost(target *engine.Target, errs []error) error {
	if target == nil || target == t.Local {
		return nil
	}
	if x := t.Clusters.at(target); x != nil {
		if err := x.gate.closed(); err != nil {
			return err
		}
	}
	for _, err := range errs {
		var lost *UnreachableError
		if errors.As(err, &lost) {
			return lost
		}
	}
	return nil
}

// Stays is nil when the KsctlCluster that a user acts on is there, as the API server has it, and
// not being deleted. It is asked once the user has said on record that it uses the cluster, and
// before it does: a cluster that goes either sees that record, or is seen to go.
func (t *Targets) Stays(ctx context.Context, namespace string, spec *appsv1.TargetCluster) error {
	ref := spec.ClusterRef
	if ref == nil {
		return nil
	}
	name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name}
	var c clusterv1.KsctlCluster
	err := t.Direct.Get(ctx, name, &c)
	if apierrors.IsNotFound(err) || err == nil && c.DeletionTimestamp != nil {
		return notReady("KsctlCluster %s is being deleted", name)
	}
	return err
}

// Forget drops what is kept of a user.
func (t *Targets) Forget(k engine.OwnerKey) {
	if k.Cluster == engine.LocalCluster {
		return
	}
	user := k.String()
	t.mu.Lock()
	delete(t.memos, user)
	t.mu.Unlock()
	t.Clusters.release(user)
}

// place is where a kubeconfig is.
type place struct {
	secret types.NamespacedName
	// key of the Secret; empty: where Flux looks for it.
	key, context string
}

// access reads a kubeconfig with the rights of the user's account, when it has changed, and
// now and then.
func (t *Targets) access(ctx context.Context, u User) (memo, error) {
	at, err := t.place(ctx, u)
	if err != nil {
		return memo{}, err
	}
	user, version, now := u.Key.String(), t.version(ctx, at.secret), t.Clusters.Clock.Now()
	from := fmt.Sprintf("%q %q %q %q %q", u.Account, version, at.secret, at.key, at.context)
	t.mu.Lock()
	was := t.memos[user]
	t.mu.Unlock()
	if version != "" && was.from == from && !u.Requested && now.Sub(was.at) < memoTime {
		return was, nil
	}
	access, err := t.read(ctx, u, at)
	if err != nil {
		return memo{}, err
	}
	config, err := access.YAML()
	if err != nil {
		return memo{}, err
	}
	m := memo{from: from, at: now, access: access, key: key{id: u.Key.Cluster, sum: sha256.Sum256(config)}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memos == nil {
		t.memos = map[string]memo{}
	}
	t.memos[user] = m
	return m, nil
}

// place finds the Secret that has the kubeconfig.
func (t *Targets) place(ctx context.Context, u User) (place, error) {
	if ref := u.Spec.KubeConfig; ref != nil {
		return place{secret: types.NamespacedName{Namespace: u.Key.Namespace, Name: ref.SecretRef.Name}, key: ref.SecretRef.Key}, nil
	}
	ref := u.Spec.ClusterRef
	name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, u.Key.Namespace), Name: ref.Name}
	if t.NoCrossNamespace && name.Namespace != u.Key.Namespace {
		return place{}, fail(AccessDeniedReason, "spec.clusterRef: namespace %s: references across namespaces are not allowed here (--no-cross-namespace-refs)", name.Namespace)
	}
	var c clusterv1.KsctlCluster
	err := t.Cache.Get(ctx, name, &c, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return place{}, fail(ClusterNotFoundReason, "spec.clusterRef: KsctlCluster %s does not exist", name)
	case err != nil:
		return place{}, err
	case c.DeletionTimestamp != nil && u.Empty:
		return place{}, notReady("KsctlCluster %s is being deleted", name)
	case c.Status.KubeConfigSecret == "":
		return place{}, notReady("KsctlCluster %s has no kubeconfig yet%s", name, why(&c))
	}
	at := place{secret: types.NamespacedName{Namespace: name.Namespace, Name: c.Status.KubeConfigSecret}, key: c.Status.KubeConfigKey}
	if ref := c.Spec.KubeConfigRef; ref != nil { // all of it from one place
		at = place{secret: types.NamespacedName{Namespace: name.Namespace, Name: ref.Name}, key: ref.Key, context: ref.Context}
	}
	return at, nil
}

// maxWhy bounds what is repeated of a cluster's own message, in bytes.
const maxWhy = 256

func why(c *clusterv1.KsctlCluster) string {
	ready := apimeta.FindStatusCondition(c.Status.Conditions, appsv1.ReadyCondition)
	if ready == nil || ready.Message == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(ready.Message[:min(len(ready.Message), maxWhy)], "")
}

// version of a Secret as the cache has it; "" if it has none, and then it is read each time.
func (t *Targets) version(ctx context.Context, name types.NamespacedName) string {
	meta := reconcile.Metadata("", "Secret")
	if err := t.Cache.Get(ctx, name, meta); err != nil {
		return ""
	}
	return meta.ResourceVersion
}

func (t *Targets) read(ctx context.Context, u User, at place) (*kubeconfig.Access, error) {
	var secret corev1.Secret
	found, err := engine.Read(ctx, u.Here, corev1.SchemeGroupVersion.WithResource("secrets"), at.secret.Namespace, at.secret.Name, &secret)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the kubeconfig of %s is in Secret %s, which ServiceAccount %s/%s may not get: whoever may get it may use the cluster: %w",
			People(u.Key.Cluster), at.secret, u.Key.Namespace, u.Account, err)
	case err != nil:
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", People(u.Key.Cluster), err)
	case !found:
		return nil, missing("Secret %s, which should have the kubeconfig, does not exist", at.secret)
	}
	key, config := kubeconfig.FromSecret(secret.Data, at.key)
	if config == nil {
		return nil, missing("Secret %s has no key %s with a kubeconfig", at.secret, key)
	}
	access, err := kubeconfig.Read(config, kubeconfig.Options{Context: at.context, AllowInsecure: t.AllowInsecure})
	if err != nil {
		return nil, fail(KubeConfigRefusedReason, "Secret %s, key %s: %w", at.secret, key, err)
	}
	return access, nil
}
