package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// publication is what a KsctlKind publishes: a revision of its stack.
type publication struct {
	template *stacks.KindTemplate
	spec     appsv1.KsctlKindSpec
	// source is the artifact of the source, artifact that of the installs, and path and stack name
	// the stack in the latter. With a rollout, artifact is a kept revision.
	source, artifact artifact.Artifact
	path, stack      string
	// keys are the data of the Secret of spec.decryption, and keysVersion is its resourceVersion.
	keys        map[string][]byte
	keysVersion string
}

// publishedKind is a kind whose CustomResourceDefinition exists. Its objects are watched until it
// is stopped.
type publishedKind struct {
	kinds *Kinds
	// owner is the name of the KsctlKind.
	owner string
	gvk   schema.GroupVersionKind
	// spec is that of the KsctlKind, also if nothing is published.
	spec atomic.Pointer[appsv1.KsctlKindSpec]
	// current is what is published: the last revision that was accepted. It is nil before this
	// process has accepted one. Objects are finalized then, and not reconciled.
	current atomic.Pointer[publication]
	// client reads from the cache of the kind, and direct from the API server.
	client     client.Client
	direct     client.Reader
	reconciler *reconcile.Reconciler[*Object]
	// running are the runningReconciles, by the uid of the object.
	running  sync.Map
	installs InstallSteps
	stop     context.CancelFunc
	// complete is the last revision that was rolled out to all objects, and releases the rollout of
	// current. Both are for a KsctlKind with a rollout.
	complete atomic.Pointer[publication]
	releases releases
	// kept are revisions that objects use, by digest.
	kept sync.Map
	// pruned are the digests of the last prune that had nothing left to delete later; nil before
	// one. usedAt has the last time at which a kept revision was used, by the name of its Secret.
	pruned []string
	usedAt map[string]time.Time
}

// runningReconcile is what a reconcile of an object uses from its start to its end, also if another
// revision is published meanwhile.
type runningReconcile struct {
	publication *publication
	sensitive   map[string][]byte
}

// runningFor returns what the running reconcile of an install uses; zero if there is none.
func (p *publishedKind) runningFor(in *appsv1.KsctlInstall) runningReconcile {
	running, _ := p.running.Load(in.UID)
	r, _ := running.(runningReconcile)
	return r
}

// key is the kind in owner keys, marks and metrics.
func (p *publishedKind) key() string { return p.gvk.Kind + "." + p.gvk.Group }

// InstallSteps reconciles the installs of the objects of a kind.
type InstallSteps interface {
	reconcile.Steps[*appsv1.KsctlInstall]
	// PermissionsChanged returns the installs that a change of permissions in a namespace may
	// concern, each with the delay until its reconcile.
	PermissionsChanged(namespace string) map[types.NamespacedName]time.Duration
	// References returns what an install uses: ConfigMaps, Secrets and the service account as
	// values of reconcile.IndexValue, and the id of its KsctlCluster.
	References(in *appsv1.KsctlInstall) []string
	// Reported returns the fields of the objects of an install that InstallRules.Report names.
	Reported(in *appsv1.KsctlInstall) map[stacks.Ref]json.RawMessage
}

// InstallRules are the rules for the installs of the objects of a kind.
type InstallRules struct {
	// Kind is the kind of owner keys: Kind.group.
	Kind string
	// Artifact returns the artifact that an install uses.
	Artifact func(ctx context.Context, in *appsv1.KsctlInstall) (artifact.Artifact, error)
	// MayUse reports whether objects of an install may be in a namespace.
	MayUse func(in *appsv1.KsctlInstall, namespace string) bool
	// MayContain returns the kinds of a cycle that an object of a kind, as Kind.group, in the stack
	// would close; nil if there is none.
	MayContain func(ctx context.Context, kind string) ([]string, error)
	// Secret returns the data of a Secret of an install, see install.ServedKind.
	Secret func(in *appsv1.KsctlInstall, name string) map[string][]byte
	// Report returns the fields of an object of an install that the status reports, see
	// live.ReportAnnotation.
	Report func(in *appsv1.KsctlInstall, ref stacks.Ref) string
}

// Kinds are the kinds that this process serves.
type Kinds struct {
	Config *rest.Config
	Mapper apimeta.RESTMapper
	// NewInstallSteps returns the steps of the installs of a kind.
	NewInstallSteps func(InstallRules) InstallSteps
	// NewReconciler returns the reconciler of the objects of a kind.
	NewReconciler func(kind string, c client.Client, direct client.Reader,
		steps reconcile.Steps[*Object]) *reconcile.Reconciler[*Object]
	// Revisions keeps the revisions of KsctlKinds with a rollout.
	Revisions *Revisions

	starting sync.Mutex // held while a kind starts
	mu       sync.Mutex
	byKey    map[string]*publishedKind
	ctx      context.Context
	cancel   context.CancelFunc
	done     sync.WaitGroup
	// watch is called for each kind that starts, with its cache.
	watch func(*publishedKind, cache.Cache) error
	// changed enqueues the KsctlKind of a kind.
	changed func(*publishedKind)
	// references of all objects.
	references  references
	composition composition
}

// get returns a kind by its key; nil if it is not served.
func (k *Kinds) get(key string) *publishedKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byKey[key]
}

// ofOwner returns the kind of a KsctlKind; nil if there is none.
func (k *Kinds) ofOwner(owner string) *publishedKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.byKey {
		if p.owner == owner {
			return p
		}
	}
	return nil
}

// all returns the kinds.
func (k *Kinds) all() (out []*publishedKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.byKey {
		out = append(out, p)
	}
	return out
}

// Start implements manager.Runnable. It stops the kinds at the end of the process.
func (k *Kinds) Start(ctx context.Context) error {
	<-ctx.Done()
	k.mu.Lock()
	if k.cancel != nil {
		k.cancel()
	}
	k.mu.Unlock()
	k.done.Wait()
	return nil
}

// start watches the objects of a kind, unless they are watched already. A kind whose stored version
// has changed starts again.
func (k *Kinds) start(owner string, gvk schema.GroupVersionKind) (*publishedKind, error) {
	k.starting.Lock()
	defer k.starting.Unlock()
	p := &publishedKind{kinds: k, owner: owner, gvk: gvk}
	have := k.get(p.key())
	switch {
	case have == nil:
	case have.owner != owner:
		return nil, fmt.Errorf("KsctlKind %s serves %s already", have.owner, p.key())
	case have.gvk == gvk:
		return have, nil
	default:
		p.current.Store(have.current.Load())
		p.spec.Store(have.spec.Load())
		p.complete.Store(have.complete.Load())
		have.stop()
	}
	if err := k.run(p); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byKey[p.key()] = p
	return p, nil
}

// run starts the cache and the watches of a kind.
func (k *Kinds) run(p *publishedKind) error {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(p.gvk, &Object{})
	scheme.AddKnownTypeWithName(p.gvk.GroupVersion().WithKind(p.gvk.Kind+"List"), &ObjectList{})
	metav1.AddToGroupVersion(scheme, p.gvk.GroupVersion())
	c, err := cache.New(k.Config, cache.Options{Scheme: scheme, Mapper: k.Mapper})
	if err != nil {
		return err
	}
	if p.client, err = client.New(k.Config, client.Options{Scheme: scheme, Mapper: k.Mapper,
		Cache: &client.CacheOptions{Reader: c}}); err != nil {
		return err
	}
	direct, err := client.New(k.Config, client.Options{Scheme: scheme, Mapper: k.Mapper})
	if err != nil {
		return err
	}
	p.direct = direct
	p.installs = k.NewInstallSteps(InstallRules{Kind: p.key(), Artifact: p.artifact, MayUse: p.mayUse,
		MayContain: p.mayContain, Secret: p.secret, Report: p.report})
	p.reconciler = k.NewReconciler(p.key(), p.client, direct, &objectSteps{published: p, kinds: k})
	p.reconciler.Events = objectEvents{p.reconciler.Events, p.gvk}
	p.reconciler.MayWait = onlyFieldsChanged
	k.mu.Lock()
	if k.ctx == nil {
		k.ctx, k.cancel = context.WithCancel(context.Background())
		k.byKey = map[string]*publishedKind{}
	}
	ctx, stop := context.WithCancel(k.ctx)
	k.mu.Unlock()
	p.stop = stop
	k.done.Go(func() {
		if err := c.Start(ctx); err != nil {
			ctrl.Log.WithName("kinds").Error(err, "watching the objects of a kind failed", "kind", p.key())
		}
	})
	if err := k.watch(p, c); err != nil {
		stop()
		return err
	}
	return nil
}

// remove stops watching the objects of a kind.
func (k *Kinds) remove(p *publishedKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKey[p.key()] == p {
		delete(k.byKey, p.key())
	}
	p.stop()
}

// listTimeout bounds the wait for the first list of the objects of a kind.
const listTimeout = 5 * time.Second

// list returns the objects of a kind, from the cache. The outcome is nil unless they are unknown.
func (p *publishedKind) list(ctx context.Context) ([]Object, reconcile.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var list ObjectList
	err := p.client.List(ctx, &list, client.UnsafeDisableDeepCopy)
	if _, starting := errors.AsType[*cache.ErrCacheNotStarted](err); starting {
		return nil, reconcile.Deferred{RequeueAt: p.reconciler.Clock.Now().Add(cacheStartDelay)}
	}
	if err != nil {
		return nil, reconcile.Retry{Err: fmt.Errorf("listing the objects of %s: %w", p.key(), err)}
	}
	return list.Items, nil
}

// hasObjects reports whether the API server has an object of the kind: the cache may be late. A
// kind that is no longer served has none.
func (p *publishedKind) hasObjects(ctx context.Context) (bool, error) {
	var list ObjectList
	err := p.direct.List(ctx, &list, client.Limit(1))
	return len(list.Items) > 0, client.IgnoreNotFound(err)
}

// cacheStartDelay is the time until a reconcile that needs the objects of a new kind is repeated.
const cacheStartDelay = 50 * time.Millisecond

// artifact returns the artifact of an install.
func (p *publishedKind) artifact(_ context.Context, in *appsv1.KsctlInstall) (artifact.Artifact, error) {
	current := p.runningFor(in).publication
	if current == nil {
		return artifact.Artifact{}, &notPublishedError{p.owner}
	}
	return current.artifact, nil
}

// secret returns the data of a Secret of an install that exists in memory only; nil for others.
func (p *publishedKind) secret(in *appsv1.KsctlInstall, name string) map[string][]byte {
	running := p.runningFor(in)
	switch {
	case name == stacks.SensitiveFields:
		return running.sensitive
	case name == decryptionKeys && running.publication != nil:
		return running.publication.keys
	}
	return nil
}

// notPublishedError reports that a KsctlKind publishes nothing.
type notPublishedError struct{ owner string }

func (e *notPublishedError) Error() string {
	return fmt.Sprintf("KsctlKind %s is not Ready: kubectl describe ksctlkind %s states why", e.owner, e.owner)
}

// mayUse reports whether objects may be in a namespace beside that of the install.
func (p *publishedKind) mayUse(in *appsv1.KsctlInstall, namespace string) bool {
	spec := p.spec.Load()
	if running := p.runningFor(in).publication; running != nil {
		spec = &running.spec
	}
	if spec == nil {
		return false
	}
	for _, allowed := range spec.TargetNamespaces {
		prefix, isPrefix := strings.CutSuffix(allowed, "*")
		if namespace == allowed || isPrefix && strings.HasPrefix(namespace, prefix) {
			return true
		}
	}
	return false
}
