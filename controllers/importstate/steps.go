package importstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// maxAttempts bounds the writes in one reconcile that conflict with writes of other clients.
const maxAttempts = 10

// Steps reconciles ImportStates.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Content fetches the content of sources.
	Content *content.Loader
	// Decrypt decrypts files; nil: encrypted files are rejected.
	Decrypt sops.Decrypter
	// Target is the cluster with the ksctl store.
	Target *engine.Target
	// DefaultServiceAccount is used if the spec names no service account; empty: such an object
	// is Stalled.
	DefaultServiceAccount string
	// SecretKey is the key of the hashes of written entries.
	SecretKey []byte
	// Selector restricts the ImportStates that are reconciled; nil selects all.
	Selector labels.Selector
	Clock    clock.PassiveClock

	// cache caches the last desired content, because decryption starts a process and calls key
	// services.
	cache reconcile.ObjectCache[*cachedDesired]
	// sends is the number of imports that wait for their agents.
	sends atomic.Int32
}

var _ reconcile.Steps[*v1alpha1.ImportState] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState]) reconcile.Outcome {
	obj := req.Object
	ctx, cancel := reconcile.WithTimeout(ctx, &obj.Spec.Schedule)
	defer cancel()
	var art artifact.Artifact
	if ref := obj.Spec.SourceRef; ref != nil {
		var err error
		if art, err = s.Content.Artifact(ctx, *ref, obj.Namespace, "", ""); err != nil {
			return content.SourceOutcome(err)
		}
	}
	obj.Status.LastAttemptedRevision = art.Revision
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return reconcile.OutcomeOf(err, art.Revision)
	}
	want, err := s.loadDesired(ctx, obj, c, art)
	if err != nil {
		return content.RenderOutcome(err, art.Revision)
	}
	if agentOf(&obj.Spec) != nil {
		return s.importToAgent(ctx, req, want, c, art.Revision)
	}
	return s.importToStore(ctx, req, want, c, art.Revision)
}

// importToStore writes the desired entries to the ksctl store. It never overwrites concurrent
// writes of other clients.
func (s *Steps) importToStore(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], want desired,
	c *engine.Client, revision string) reconcile.Outcome {
	obj := req.Object
	opts := planOptions{overwrite: obj.Spec.Conflict == v1alpha1.OverwriteConflict, dryRun: obj.Spec.DryRun,
		skipCredentials: obj.Spec.Credentials == v1alpha1.SkipCredentials, hash: s.hash}
	namespace := storeNamespace(&obj.Spec)
	dest := destination{namespace: namespace}
	before := previousStatus(&obj.Status, dest)
	st, err := statestore.Read(ctx, c, namespace, !opts.skipCredentials)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: revision}
	}
	warnDestinationChange(req, dest) // emitted once, because from here on the status has the new destination
	for range maxAttempts {
		p := newPlan(want, st.Contents, before, opts)
		if err := s.act(ctx, req, st, &p, opts); err != nil {
			if err = st.ReloadAfterConflict(ctx, err); err != nil {
				return reconcile.Retry{Err: err, Revision: revision}
			}
			before = obj.Status // marks the entries of this attempt, some of which may be written
			continue
		}
		if opts.dryRun {
			return p.preview(&obj.Status, want, dest, revision)
		}
		out := p.finish(&obj.Status, want, dest, revision)
		if err := s.createClusters(ctx, req, c); err != nil {
			if _, done := out.(reconcile.Done); done {
				retry := reconcile.Retry{Err: err, Revision: revision}
				if errors.Is(err, errNotInCache) {
					retry.RequeueAfter = time.Second
				}
				return retry
			}
			req.Event(corev1.EventTypeWarning, "ClusterCreationFailed", err.Error())
		}
		return out
	}
	return reconcile.Retry{Reason: v1alpha1.StoreContendedReason, Revision: revision, RequeueAfter: time.Second,
		Err: fmt.Errorf("writing the ksctl store in namespace %s: %d conflicts with writes of other clients: retrying",
			namespace, maxAttempts)}
}

// act writes the entries of the plan. The status is written first, so that after a crash the next
// process recognizes the entries in the store as its own.
func (s *Steps) act(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], st *statestore.Store,
	p *importPlan, opts planOptions) error {
	if opts.dryRun || len(p.states)+len(p.secrets) == 0 {
		return nil
	}
	p.announce(opts)
	p.report(&req.Object.Status, destination{namespace: st.Namespace})
	if err := req.Persist(ctx, "writing to the ksctl store in namespace "+st.Namespace); err != nil {
		return err
	}
	if err := st.Write(ctx, p.states, p.secrets); err != nil {
		return err
	}
	req.Event(corev1.EventTypeNormal, "StateWritten", p.markWritten()+" to the ksctl store in namespace "+st.Namespace)
	return nil
}

// report sets the rows and the destination in the status.
func (p *importPlan) report(status *v1alpha1.ImportStateStatus, dest destination) {
	status.Clusters, status.Credentials = p.clusters, nil
	for _, row := range p.credentials {
		status.Credentials = append(status.Credentials, v1alpha1.ImportedCredentials{Cloud: row.Key, Action: row.Action,
			Ready: row.Ready, Message: row.Message,
			Written: row.Written, Ours: row.Ours, Writing: row.Writing})
	}
	status.Store, status.Agent = dest.namespace, dest.agent
}

// finish sets the status after the plan was executed, and returns the outcome.
func (p *importPlan) finish(status *v1alpha1.ImportStateStatus, want desired, dest destination,
	revision string) reconcile.Outcome {
	p.report(status, dest)
	out := p.outcome(want, dest, revision, false)
	if _, done := out.(reconcile.Done); done {
		status.LastAppliedRevision = revision
	}
	return out
}

// preview returns the outcome of a dry run. KsctlClusters read the store in the status, and its
// rows record what was written there. So the status keeps its destination, and gets the rows of the
// plan only if they have the same destination, or if nothing was written before.
func (p *importPlan) preview(status *v1alpha1.ImportStateStatus, want desired, dest destination,
	revision string) reconcile.Outcome {
	out := p.outcome(want, dest, revision, true)
	last := destinationOf(status)
	if last == dest || last == (destination{}) {
		p.report(status, last)
		return out
	}
	suffix := "; the status still describes " + last.String()
	switch o := out.(type) {
	case reconcile.Done:
		o.Message += suffix
		return o
	case reconcile.Stalled:
		o.Err = fmt.Errorf("%w%s", o.Err, suffix)
		return o
	case reconcile.Retry:
		o.Err = fmt.Errorf("%w%s", o.Err, suffix)
		return o
	}
	return out
}

// previousStatus returns the status without the entries of another destination than the current
// one.
func previousStatus(status *v1alpha1.ImportStateStatus, dest destination) v1alpha1.ImportStateStatus {
	if destinationOf(status) == dest {
		return *status
	}
	return v1alpha1.ImportStateStatus{Clusters: clusterRefs(status.Clusters)}
}

// warnDestinationChange emits an event about the entries that stay at the previous destination.
func warnDestinationChange(req *reconcile.Request[*v1alpha1.ImportState], dest destination) {
	last, verb := destinationOf(&req.Object.Status), "imported into "
	if last == dest || last == (destination{}) || req.Object.Spec.DryRun {
		return
	}
	if last.agent != "" {
		verb = "sent to "
	}
	req.Event(corev1.EventTypeWarning, "StateKept", "states that were "+verb+last.String()+
		" stay there and are no longer managed")
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState]) reconcile.Outcome {
	obj := req.Object
	if obj.Spec.DeletionPolicy != v1alpha1.DeleteState || obj.Status.Store == "" {
		return reconcile.Done{Message: "the imported states stay in the store"}
	}
	terminating := reconcile.IsDeletedWithNamespace(ctx, s.Client, obj)
	if terminating && obj.Status.Store == obj.Namespace {
		return reconcile.Done{Message: "the store is deleted with its namespace"}
	}
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return reconcile.OutcomeOf(fmt.Errorf("%w%s", err, keepHint), "")
	}
	remaining, err := s.deleteClusters(ctx, obj, c, terminating)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("%w%s", err, keepHint)}
	}
	if len(remaining) > 0 {
		return s.waitForClusters(obj, remaining)
	}
	st, err := statestore.Read(ctx, c, obj.Status.Store, len(obj.Status.Credentials) > 0)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("%w%s", err, keepHint)}
	}
	for range maxAttempts {
		states, credentials, kept := entriesToRemove(&obj.Status, st.Contents, s.hash)
		if err := st.Remove(ctx, states, credentials); err != nil {
			if err = st.ReloadAfterConflict(ctx, err); err != nil {
				return reconcile.Retry{Err: err}
			}
			continue
		}
		if len(kept) > 0 {
			req.Event(corev1.EventTypeWarning, "StateKept",
				"entries that changed in the store since the import are not removed: "+statestore.JoinMessages(kept))
		}
		return reconcile.Done{Message: "the imported states are removed from the store"}
	}
	return reconcile.Retry{Reason: v1alpha1.StoreContendedReason, RequeueAfter: time.Second,
		Err: fmt.Errorf("removing states from the ksctl store in namespace %s: %d conflicts with writes of other "+
			"clients: retrying", obj.Status.Store, maxAttempts)}
}

// entriesToRemove returns the keys of the entries that the import wrote and that are unchanged, and
// the keys of those that other clients have changed since.
func entriesToRemove(status *v1alpha1.ImportStateStatus, have statestore.Contents,
	hash func([]byte) string) (states, credentials, kept []string) {
	removable := func(rows []v1alpha1.ImportedCluster, stored map[string][]byte) (keys []string) {
		for _, row := range rows {
			data := stored[row.Key]
			if data == nil || !row.Ours && row.Writing == "" {
				continue
			}
			if h := hash(data); h != row.Writing && (h != row.Written || !row.Ours) {
				kept = append(kept, row.Key)
			} else {
				keys = append(keys, row.Key)
			}
		}
		return keys
	}
	states = removable(status.Clusters, have.States)
	credentials = removable(credentialRows(status.Credentials), have.Credentials)
	return states, credentials, kept
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) { s.cache.Drop(key) }

// hash returns a keyed hash of a document: it identifies the content without revealing it.
func (s *Steps) hash(data []byte) string { return statestore.HashDocument(s.SecretKey, data) }

func storeNamespace(spec *v1alpha1.ImportStateSpec) string {
	if spec.Store == nil {
		return statestore.NamespaceOf(nil)
	}
	return statestore.NamespaceOf(&spec.Store.StateStore)
}

// clientFor returns a client with the permissions of the import's account.
func (s *Steps) clientFor(ctx context.Context, obj *v1alpha1.ImportState) (*engine.Client, error) {
	return reconcile.RecordedAccountClient(ctx, s.Client, s.Target, obj,
		cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount))
}
