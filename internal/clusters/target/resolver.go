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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

// Resolver resolves the cluster that an object acts on.
type Resolver struct {
	// Cache caches KsctlClusters and the metadata of Secrets; Direct reads from the API server.
	Cache, Direct client.Reader
	// Local is the cluster that the controller runs in, Clusters are the remote ones.
	Local    *engine.Target
	Clusters *Clusters
	// NoCrossNamespace refuses KsctlClusters of other namespaces.
	NoCrossNamespace bool
	// AllowInsecure accepts kubeconfigs that do not verify the server.
	AllowInsecure bool

	// accesses maps the owner keys of users to the cachedAccess that they read last.
	accesses sync.Map
}

var secretGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// cachedAccess is a kubeconfig that was read from a Secret.
type cachedAccess struct {
	source string
	readAt time.Time
	access *kubeconfig.Access
	key    clusterKey
}

// accessTTL is how long a kubeconfig is used before it is read again. Reading it again also detects
// that the account has lost the permission to read it.
const accessTTL = 5 * time.Minute

// User is an object that acts on a cluster.
type User struct {
	Key plan.OwnerKey
	// Spec refers to the cluster.
	Spec *appsv1.TargetCluster
	// Account is the ServiceAccount in the object's namespace. LocalClient is a client of the local
	// cluster with its permissions.
	Account     string
	LocalClient *engine.Client
	// Empty is true if the object has nothing installed yet, Deleting if it is being deleted. UID
	// is the UID of the cluster with the installed objects, if it is known.
	Empty, Deleting bool
	UID             string
	// Requested is true if a user requested a reconcile.
	Requested bool
}

// ResolvedCluster is the result of Resolver.Resolve.
type ResolvedCluster struct {
	Target *engine.Target
	Client *engine.Client
	// WatchClient is a client without a request timeout, for watches.
	WatchClient *engine.Client
	// UID is the UID of the cluster; "" for the local cluster, or if it is unknown.
	UID string
}

// Resolve returns the cluster that a user acts on, with a client. Errors are *Error,
// *ClusterMismatchError, *UnreachableError, and those of requests to the local cluster.
func (t *Resolver) Resolve(ctx context.Context, u User) (ResolvedCluster, error) {
	clusterID := ID(u.Key.Namespace, u.Spec)
	switch {
	case clusterID != u.Key.Cluster:
		return ResolvedCluster{}, newError(appsv1.ClusterChangedReason,
			"the installed objects are on %s, but the spec now names %s: nothing is changed on either; name %[1]s "+
				"again or, to move, remove the objects there first, with a KsctlRemove or by deleting this object",
			DisplayName(u.Key.Cluster), DisplayName(clusterID))
	case clusterID == plan.LocalCluster:
		return ResolvedCluster{Target: t.Local, Client: u.LocalClient, WatchClient: u.LocalClient}, nil
	}
	m, err := t.access(ctx, u)
	if err != nil {
		var known *reconcile.StepError
		if errors.As(err, &known) && known.Class != reconcile.WaitingClass {
			t.Clusters.release(u.Key.String()) // the previous kubeconfig must not be used anymore
		}
		return ResolvedCluster{}, err
	}
	x, err := t.Clusters.use(u.Key.String(), m.key, m.access)
	if err != nil {
		return ResolvedCluster{}, err
	}
	if err := x.breaker.unavailable(); err != nil {
		if u.Requested {
			signal(x.breaker.immediateProbes) // without waiting for the backoff
		}
		return ResolvedCluster{}, err
	}
	uid := x.breaker.clusterUID()
	if !u.Empty && u.UID != "" && uid != "" && uid != u.UID {
		return ResolvedCluster{}, &ClusterMismatchError{Cluster: clusterID, UID: uid}
	}
	c, err := x.target.ClientFor(nil)
	return ResolvedCluster{Target: x.target, Client: c, WatchClient: x.watchClient, UID: uid}, err
}

// OrUnreachable returns out, or the outcome of an *UnreachableError and true if the cluster is
// unavailable, or if errs or the error of out contain such an error. The failure is then that of
// the cluster, not of the requests. The local cluster is always available.
func (t *Resolver) OrUnreachable(target *engine.Target, out reconcile.Outcome, revision string,
	errs ...error) (_ reconcile.Outcome, isUnreachable bool) {
	if target == nil || target == t.Local {
		return out, false
	}
	if retry, failed := out.(reconcile.Retry); failed {
		errs = append(errs, retry.Err)
	}
	if x := t.Clusters.entryFor(target); x != nil {
		errs = append([]error{x.breaker.unavailable()}, errs...)
	}
	if err, ok := errors.AsType[*UnreachableError](errors.Join(errs...)); ok {
		return Outcome(err, revision), true
	}
	return out, false
}

// EnsureNotDeleting returns an error if the KsctlCluster of a spec does not exist or is being
// deleted. It reads from the API server, not from the cache. Call it after the use of the cluster
// is recorded in a status and before the cluster is used: then either the deletion of the
// KsctlCluster observes the record, or this function observes the deletion.
func (t *Resolver) EnsureNotDeleting(ctx context.Context, namespace string, spec *appsv1.TargetCluster) error {
	ref := spec.ClusterRef
	if ref == nil {
		return nil
	}
	name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name}
	var c clusterv1.KsctlCluster
	err := t.Direct.Get(ctx, name, &c)
	if apierrors.IsNotFound(err) || err == nil && c.DeletionTimestamp != nil {
		return notReadyError(name, "KsctlCluster %s is being deleted", name)
	}
	return err
}

// Forget removes the cached kubeconfig of a user and the user from its cluster.
func (t *Resolver) Forget(k plan.OwnerKey) {
	if k.Cluster == plan.LocalCluster {
		return
	}
	user := k.String()
	t.accesses.Delete(user)
	t.Clusters.release(user)
}

// kubeconfigRef refers to a context of a kubeconfig in a Secret.
type kubeconfigRef struct {
	secret types.NamespacedName
	// key is the key of the Secret; empty means Flux's default keys.
	key, context string
}

// access returns the kubeconfig of a user. It reads the Secret with the permissions of the user's
// account, if the Secret has changed, after accessTTL, and for requested reconciles.
func (t *Resolver) access(ctx context.Context, u User) (cachedAccess, error) {
	ref, err := t.locateKubeconfig(ctx, u)
	if err != nil {
		return cachedAccess{}, err
	}
	secret := reconcile.PartialMetadata("", "Secret")
	// Without a resource version, the Secret is not cached, and is read each time.
	_ = t.Cache.Get(ctx, ref.secret, secret)
	user, version, now := u.Key.String(), secret.ResourceVersion, time.Now()
	source := fmt.Sprintf("%q %q %q %q %q", u.Account, version, ref.secret, ref.key, ref.context)
	last, _ := t.accesses.Load(user)
	if cached, ok := last.(cachedAccess); ok && version != "" && cached.source == source && !u.Requested &&
		now.Sub(cached.readAt) < accessTTL {
		return cached, nil
	}
	access, err := t.readKubeconfig(ctx, u, ref)
	if err != nil {
		return cachedAccess{}, err
	}
	config, err := access.YAML()
	if err != nil {
		return cachedAccess{}, err
	}
	m := cachedAccess{source: source, readAt: now, access: access,
		key: clusterKey{id: u.Key.Cluster, sum: sha256.Sum256(config)}}
	t.accesses.Store(user, m)
	return m, nil
}

// locateKubeconfig returns the reference to the kubeconfig of a user's cluster.
func (t *Resolver) locateKubeconfig(ctx context.Context, u User) (kubeconfigRef, error) {
	if ref := u.Spec.KubeConfig; ref != nil {
		return kubeconfigRef{secret: types.NamespacedName{Namespace: u.Key.Namespace, Name: ref.SecretRef.Name},
			key: ref.SecretRef.Key}, nil
	}
	ref := u.Spec.ClusterRef
	name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, u.Key.Namespace), Name: ref.Name}
	if t.NoCrossNamespace && name.Namespace != u.Key.Namespace {
		return kubeconfigRef{},
			newError(appsv1.AccessDeniedReason,
				"spec.clusterRef: namespace %s: references across namespaces are not allowed here "+
					"(--no-cross-namespace-refs)", name.Namespace)
	}
	var c clusterv1.KsctlCluster
	err := t.Cache.Get(ctx, name, &c, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return kubeconfigRef{},
			newError(appsv1.ClusterNotFoundReason, "spec.clusterRef: KsctlCluster %s does not exist", name)
	case err != nil:
		return kubeconfigRef{}, err
	case c.DeletionTimestamp != nil && u.Empty:
		return kubeconfigRef{}, notReadyError(name, "KsctlCluster %s is being deleted", name)
	case c.Status.KubeConfigSecret == "":
		return kubeconfigRef{}, notReadyError(name, "KsctlCluster %s has no kubeconfig yet%s", name, readyMessage(&c))
	}
	location := kubeconfigRef{secret: types.NamespacedName{Namespace: name.Namespace, Name: c.Status.KubeConfigSecret},
		key: c.Status.KubeConfigKey}
	if ref := c.Spec.KubeConfigRef; ref != nil { // never mix fields of the status and the spec
		location = kubeconfigRef{secret: types.NamespacedName{Namespace: name.Namespace, Name: ref.Name}, key: ref.Key,
			context: ref.Context}
	}
	return location, nil
}

// isPermissionDeleted reports whether a namespace is being deleted, and with it the permission to
// read a kubeconfig that the user needs to remove what it installed.
func (t *Resolver) isPermissionDeleted(ctx context.Context, u User, namespace string) bool {
	return u.Deleting && !u.Empty && reconcile.IsNamespaceTerminating(ctx, t.Cache, namespace)
}

// readSecret reads a Secret with the permissions of the controller.
func (t *Resolver) readSecret(ctx context.Context, name types.NamespacedName,
	into *corev1.Secret) (found bool, err error) {
	c, err := t.Local.ClientFor(nil)
	if err != nil {
		return false, err
	}
	return engine.GetInto(ctx, c, secretGVR, name.Namespace, name.Name, into)
}

// maxReadyMessage is the maximum number of bytes of a KsctlCluster's Ready message in messages.
const maxReadyMessage = 256

func readyMessage(c *clusterv1.KsctlCluster) string {
	message := reconcile.QuotedMessage(c.Status.Conditions)
	if message == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(message[:min(len(message), maxReadyMessage)], "")
}

func (t *Resolver) readKubeconfig(ctx context.Context, u User, ref kubeconfigRef) (*kubeconfig.Access, error) {
	var secret corev1.Secret
	found, err := engine.GetInto(ctx, u.LocalClient, secretGVR, ref.secret.Namespace, ref.secret.Name, &secret)
	if apierrors.IsForbidden(err) && t.isPermissionDeleted(ctx, u, ref.secret.Namespace) {
		found, err = t.readSecret(ctx, ref.secret, &secret)
	}
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the kubeconfig of %s is in Secret %s, which ServiceAccount %s/%s may not get: only "+
			"accounts that may get it can use the cluster: %w",
			DisplayName(u.Key.Cluster), ref.secret, u.Key.Namespace, u.Account, err)
	case err != nil:
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", DisplayName(u.Key.Cluster), err)
	case !found:
		return nil, notFoundError("Secret %s with the kubeconfig does not exist", ref.secret)
	}
	key, config := kubeconfig.FromSecret(secret.Data, ref.key)
	if config == nil {
		return nil, notFoundError("Secret %s has no key %s with a kubeconfig", ref.secret, key)
	}
	access, err := kubeconfig.Read(config, kubeconfig.Options{Context: ref.context, AllowInsecure: t.AllowInsecure})
	if err != nil {
		return nil, newError(appsv1.KubeConfigRefusedReason, "Secret %s, key %s: %w", ref.secret, key, err)
	}
	return access, nil
}
