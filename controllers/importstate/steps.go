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
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// Kind of the objects that are reconciled here.
const Kind = "ImportState"

// attempts to write while others write, too, before it is left to a later pass.
const attempts = 10

// Steps reconcile an ImportState.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Content gets what sources hold.
	Content *content.Loader
	// Decrypt decrypts files; nil: encrypted ones are refused.
	Decrypt sops.Decrypter
	// Target has ksctl's store.
	Target *engine.Target
	// DefaultServiceAccount is used where an object names none; empty: it is refused.
	DefaultServiceAccount string
	// SecretKey keys hashes of what is written.
	SecretKey []byte
	// Selector restricts the objects that are reconciled here; nil: all are.
	Selector labels.Selector
	Clock    clock.PassiveClock

	// read is what was read last: decrypting costs a process, and requests to key services.
	read reconcile.Kept[*reading]
	// sending is how many wait for their agents.
	sending atomic.Int32
}

var _ reconcile.Steps[*v1alpha1.ImportState] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState]) reconcile.Outcome {
	obj := req.Object
	timeout := reconcile.Timeout(&obj.Spec.Schedule)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
	defer cancel()
	var from artifact.Artifact
	if ref := obj.Spec.SourceRef; ref != nil {
		var err error
		if from, err = s.Content.Artifact(ctx, *ref, obj.Namespace, "", ""); err != nil {
			return content.SourceOutcome(err)
		}
	}
	obj.Status.LastAttemptedRevision = from.Revision
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return account.Outcome(err, from.Revision)
	}
	want, err := s.want(ctx, obj, c, from)
	if err != nil {
		return failed(err, from.Revision)
	}
	if agentOf(&obj.Spec) != nil {
		return s.deliver(ctx, req, want, c, from.Revision)
	}
	return s.carry(ctx, req, want, c, from.Revision)
}

// carry brings what is wanted into the store. Whoever writes there meanwhile goes first.
func (s *Steps) carry(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], want wishes, c *engine.Client, revision string) reconcile.Outcome {
	obj := req.Object
	how := policy{overwrite: obj.Spec.Conflict == v1alpha1.OverwriteConflict, dryRun: obj.Spec.DryRun,
		noCredentials: obj.Spec.Credentials == v1alpha1.SkipCredentials, hash: s.hash}
	namespace := namespaceOf(&obj.Spec)
	to := place{namespace: namespace}
	before := former(&obj.Status, to)
	st, err := statestore.Read(ctx, c, namespace, !how.noCredentials)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: revision}
	}
	takeLeave(req, to) // once: from here on each pass notes where it went
	for range attempts {
		p := newPlan(want, st.Held, before, how)
		if err := s.act(ctx, req, st, &p, how); err != nil {
			if err = st.Reread(ctx, err); err != nil {
				return reconcile.Retry{Err: err, Revision: revision}
			}
			before = obj.Status // with what was about to be written, of which some may be
			continue
		}
		if how.dryRun {
			return p.preview(&obj.Status, want, to, revision)
		}
		p.report(&obj.Status, to)
		out := p.outcome(want, to, revision, false)
		if _, done := out.(reconcile.Done); done {
			obj.Status.LastAppliedRevision = revision
		}
		if err := s.introduce(ctx, req, c); err != nil {
			if _, done := out.(reconcile.Done); done {
				retry := reconcile.Retry{Err: err, Revision: revision}
				if errors.Is(err, errBehind) {
					retry.After = time.Second
				}
				return retry
			}
			req.Event(corev1.EventTypeWarning, "ClusterNotMade", err.Error())
		}
		return out
	}
	return reconcile.Retry{Reason: StoreContendedReason, Revision: revision, After: time.Second,
		Err: fmt.Errorf("ksctl's store in namespace %s was written by others %d times while it was to be written from here: it is tried again", namespace, attempts)}
}

// act writes what the plan says, after the status has it: a process that ends in between
// leaves nothing in the store that the next takes for somebody else's.
func (s *Steps) act(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], st *statestore.Store, p *plan, how policy) error {
	if how.dryRun || len(p.states)+len(p.secrets) == 0 {
		return nil
	}
	p.announce(how)
	p.report(&req.Object.Status, place{namespace: st.Namespace})
	if err := req.Persist(ctx, "writing to ksctl's store in namespace "+st.Namespace); err != nil {
		return err
	}
	if err := st.Write(ctx, p.states, p.secrets); err != nil {
		return err
	}
	req.Event(corev1.EventTypeNormal, "StateWritten", p.written()+" to ksctl's store in namespace "+st.Namespace)
	return nil
}

// report writes the plan into a status.
func (p *plan) report(status *v1alpha1.ImportStateStatus, to place) {
	status.Clusters, status.Credentials = p.clusters, p.credentials
	status.Store, status.Agent = to.namespace, to.agent
}

// preview says what a plan would do. KsctlClusters look where the status says that something was
// brought, and its lines have what was written there: so it goes on telling of that place, and
// has the lines of the plan only if that is of the same one, or nothing was brought anywhere yet.
func (p *plan) preview(status *v1alpha1.ImportStateStatus, want wishes, to place, revision string) reconcile.Outcome {
	out := p.outcome(want, to, revision, true)
	was := placeOf(status)
	if was == to || was == (place{}) {
		status.Clusters, status.Credentials = p.clusters, p.credentials
		return out
	}
	stays := "; status tells, as before, of " + was.String()
	switch o := out.(type) {
	case reconcile.Done:
		o.Message += stays
		return o
	case reconcile.Stalled:
		o.Err = fmt.Errorf("%w%s", o.Err, stays)
		return o
	case reconcile.Retry:
		o.Err = fmt.Errorf("%w%s", o.Err, stays)
		return o
	}
	return out
}

// former is the status of an import, without what was brought to another place than it is to go to.
func former(status *v1alpha1.ImportStateStatus, to place) v1alpha1.ImportStateStatus {
	if placeOf(status) == to {
		return *status
	}
	return v1alpha1.ImportStateStatus{Clusters: knownClusters(status.Clusters)}
}

// takeLeave says what stays at the place that an import went to before.
func takeLeave(req *reconcile.Request[*v1alpha1.ImportState], to place) {
	was := placeOf(&req.Object.Status)
	switch {
	case was == to || req.Object.Spec.DryRun:
	case was.agent != "":
		req.Event(corev1.EventTypeWarning, "StateKept", "what was sent to "+was.String()+" stays there, and is not looked after any more")
	case was.namespace != "":
		req.Event(corev1.EventTypeWarning, "StateKept", "what was imported into "+was.String()+" stays there, and is not looked after any more")
	}
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState]) reconcile.Outcome {
	obj := req.Object
	if obj.Spec.DeletionPolicy != v1alpha1.DeleteState || obj.Status.Store == "" {
		return reconcile.Done{Message: "what was imported stays in the store"}
	}
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return account.Outcome(fmt.Errorf("%w%s", err, orKeep), "")
	}
	left, err := s.dismiss(ctx, obj, c)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("%w%s", err, orKeep)}
	}
	if len(left) > 0 {
		return s.await(obj, left)
	}
	st, err := statestore.Read(ctx, c, obj.Status.Store, len(obj.Status.Credentials) > 0)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("%w%s", err, orKeep)}
	}
	for range attempts {
		states, credentials, kept := leaving(&obj.Status, st.Held, s.hash)
		if err := st.Remove(ctx, states, credentials); err != nil {
			if err = st.Reread(ctx, err); err != nil {
				return reconcile.Retry{Err: err}
			}
			continue
		}
		if len(kept) > 0 {
			req.Event(corev1.EventTypeWarning, "StateKept", "changed in the store since it was imported, and left there: "+statestore.Lines(kept))
		}
		return reconcile.Done{Message: "what was imported was taken out of the store"}
	}
	return reconcile.Retry{Reason: StoreContendedReason, After: time.Second, Err: fmt.Errorf("ksctl's store in namespace %s is written by others all the time", obj.Status.Store)}
}

// leaving are the keys of what was written and is as it was written, and those that
// somebody has changed since.
func leaving(status *v1alpha1.ImportStateStatus, have statestore.Held, hash func([]byte) string) (states, credentials, kept []string) {
	judge := func(key string, have []byte, r record) bool {
		if have == nil || !r.ours && r.writing == "" {
			return false
		}
		if h := hash(have); h != r.writing && (h != r.written || !r.ours) {
			kept = append(kept, key)
			return false
		}
		return true
	}
	for _, row := range status.Clusters {
		if judge(row.Key, have.States[row.Key], recordOf(row)) {
			states = append(states, row.Key)
		}
	}
	for _, row := range status.Credentials {
		if judge(row.Cloud, have.Credentials[row.Cloud], record{row.Written, row.Writing, row.Ours}) {
			credentials = append(credentials, row.Cloud)
		}
	}
	return states, credentials, kept
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) { s.read.Drop(key) }

// hash tells documents apart by what they say, and tells nothing of them.
func (s *Steps) hash(data []byte) string { return statestore.Hash(s.SecretKey, data) }

func namespaceOf(spec *v1alpha1.ImportStateSpec) string {
	if spec.Store == nil {
		return statestore.NamespaceOf(nil)
	}
	return statestore.NamespaceOf(&spec.Store.StateStore)
}

// clientFor returns a client with the rights of the import's account.
func (s *Steps) clientFor(ctx context.Context, obj *v1alpha1.ImportState) (*engine.Client, error) {
	name := types.NamespacedName{Namespace: obj.Namespace, Name: cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)}
	return account.Client(ctx, s.Client, s.Target, name)
}
