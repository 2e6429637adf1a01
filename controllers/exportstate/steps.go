package exportstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// Kind of the objects that are reconciled here.
const Kind = "ExportState"

// attempts to write while others write, too, before it is left to a later pass.
const attempts = 5

// Steps reconcile an ExportState.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Git commits to repositories.
	Git *git.Client
	// Encrypt encrypts files; nil: nothing is exported.
	Encrypt sops.Encrypter
	// Target has ksctl's store.
	Target *engine.Target
	// DefaultServiceAccount is used where an object names none; empty: it is refused.
	DefaultServiceAccount string
	// SecretKey keys hashes of what is exported.
	SecretKey []byte
	Clock     clock.PassiveClock

	memos reconcile.Kept[*memo]
}

// memo is what is remembered of an export between passes. Nothing in it is readable.
type memo struct {
	// at is the commit whose files were looked at last, found what they are.
	at    string
	found map[string]found
	// sealed are documents that were encrypted and not written yet, by file and sum.
	sealed map[string][]byte
}

var _ reconcile.Steps[*v1alpha1.ExportState] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState]) reconcile.Outcome {
	obj := req.Object
	timeout := reconcile.Timeout(&obj.Spec.Schedule)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within the timeout of %s", timeout))
	defer cancel()
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return account.Outcome(err, "")
	}
	namespace := statestore.NamespaceOf(obj.Spec.From)
	store, err := statestore.Read(ctx, c, namespace, obj.Spec.Credentials == v1alpha1.ExportCredentials)
	switch {
	case err != nil:
		return reconcile.Retry{Err: err}
	case store.External:
		return failed(fail(ExternalStorageReason, "ksctl keeps its states in a MongoDB, and not in namespace %s: export them there, with ksctl", namespace))
	case !store.HasStates:
		return reconcile.Waiting{On: "there is no ksctl store in namespace " + namespace, Reason: StoreNotFoundReason}
	}
	want, err := s.gather(&obj.Spec, store.Held)
	if err != nil {
		return failed(err)
	}
	if err := s.yield(ctx, obj, &want); err != nil {
		return failed(err)
	}
	m, err := s.memos.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*memo, error) { return &memo{}, nil })
	if err != nil {
		return failed(err)
	}
	to, err := s.place(ctx, obj, c, m)
	if err != nil {
		return failed(err)
	}
	defer to.close()
	s.move(req, to)
	return s.carry(ctx, req, want, to, m)
}

// yield leaves to older exports what they write to the same folder.
func (s *Steps) yield(ctx context.Context, obj *v1alpha1.ExportState, want *wishes) error {
	to := obj.Spec.To.Git
	if to == nil {
		return nil
	}
	var all v1alpha1.ExportStateList
	if err := s.Client.List(ctx, &all, client.MatchingFields{byMeeting: meeting(obj.Namespace, to)}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	want.without(rivals(obj, all.Items))
	return nil
}

// move gives up what was written to another place than the spec names now.
func (s *Steps) move(req *reconcile.Request[*v1alpha1.ExportState], to place) {
	st := &req.Object.Status
	if st.Target == to.String() {
		return
	}
	if st.Target != "" {
		// Also where it would be deleted with the object: what is to come may not come.
		req.Event(corev1.EventTypeWarning, "ExportKept", "what was exported to "+st.Target+" stays there, and is not looked after any more")
	}
	st.Target, st.Secret, st.Clusters, st.Credentials, st.Digest, st.LastExportedRevision = to.String(), "", nil, nil, "", ""
}

// carry brings what is wanted to its place. Whoever writes there meanwhile goes first.
func (s *Steps) carry(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState], want wishes, to place, m *memo) reconcile.Outcome {
	obj := req.Object
	for range attempts {
		have, err := to.look(ctx, keysOf(want, obj.Status))
		if err != nil {
			return failed(err)
		}
		p := newPlan(want, have, obj.Status, obj.Spec.Prune)
		err = s.act(ctx, req, to, &p, m)
		switch {
		case contended(err):
			continue
		case err != nil:
			return failed(err)
		}
		s.report(obj, &p)
		return p.outcome(to.String(), to.bytes(), obj.Status.LastExportedRevision)
	}
	return reconcile.Retry{Reason: TargetContendedReason, After: time.Second,
		Err: fmt.Errorf("%s was written by others %d times while it was to be written from here: it is tried again", to, attempts)}
}

// keysOf are the files that an export has to do with, and what is in each.
func keysOf(want wishes, before v1alpha1.ExportStateStatus) map[string]string {
	out := map[string]string{}
	for _, row := range slices.Concat(before.Clusters, before.Credentials, want.refused, want.refusedCredentials) {
		out[row.File] = row.Key
	}
	for _, d := range want.documents {
		out[d.file] = d.key
	}
	return out
}

// act writes what the plan says, after the status has it: a process that ends in between
// leaves nothing that the next takes for somebody else's.
func (s *Steps) act(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState], to place, p *plan, m *memo) error {
	obj := req.Object
	files, err := s.seal(ctx, &obj.Spec, p, m)
	if err != nil {
		return err
	}
	if p.found {
		obj.Status.LastExportedRevision, obj.Status.Secret = to.revision(), to.secret()
	}
	if len(p.write)+len(p.remove) == 0 {
		return nil
	}
	if err := to.fits(files, p.remove); err != nil {
		return err
	}
	sums := map[string]record{}
	for _, d := range p.write {
		sums[d.file] = record{d.sum, statestore.Sum(s.SecretKey, files[d.file])}
	}
	p.announce(sums)
	s.report(obj, p)
	obj.Status.Secret = to.secret()
	if err := req.Persist(ctx, "writing to "+to.String()); err != nil {
		return err
	}
	revision, err := to.write(ctx, change{files: files, remove: p.remove, message: messageOf(obj, p)})
	if err != nil {
		return err
	}
	obj.Status.LastExportedRevision = revision
	if len(p.restored) > 0 {
		req.Event(corev1.EventTypeWarning, "ExportRestored", "somebody had changed or removed, and they are written again: "+statestore.Lines(p.restored))
	}
	req.Event(corev1.EventTypeNormal, "StateExported", p.did()+" to "+to.String())
	p.written()
	m.sealed = nil
	return nil
}

// seal encrypts what is to be written. What would stay readable is taken out of the plan.
func (s *Steps) seal(ctx context.Context, spec *v1alpha1.ExportStateSpec, p *plan, m *memo) (map[string][]byte, error) {
	out, kept := map[string][]byte{}, map[string][]byte{}
	defer func() { m.sealed = kept }()
	for _, d := range slices.Clone(p.write) {
		at := d.file + " " + d.sum
		data := m.sealed[at]
		if data == nil {
			if s.Encrypt == nil {
				return nil, fail(string(sops.Unavailable), "this program encrypts nothing")
			}
			var err error
			data, err = state.Seal(ctx, d.file, d.data, spec.Recipients, s.Encrypt)
			if bad, ok := errors.AsType[*state.SealError](err); ok {
				reason := InvalidStateReason
				if len(bad.Readable) > 0 {
					reason = PlaintextReason
				}
				p.refuse(d.file, reason, statestore.Clip(err.Error(), 300))
				continue
			}
			if bad, ok := errors.AsType[*sops.Error](err); ok && bad.Reason == sops.FileInvalid {
				p.refuse(d.file, InvalidStateReason, statestore.Clip(err.Error(), 300))
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.file, err)
			}
		}
		out[d.file], kept[at] = data, data
	}
	return out, nil
}

// report writes the plan into the status.
func (s *Steps) report(obj *v1alpha1.ExportState, p *plan) {
	obj.Status.Clusters, obj.Status.Credentials = p.clusters, p.credentials
	var all []string
	p.rows(func(row *v1alpha1.ExportedFile) {
		if row.Action == v1alpha1.ExportInSync {
			all = append(all, row.File+" "+readRecord(row.Written).document)
		}
	})
	obj.Status.Digest = statestore.Sum(s.SecretKey, []byte(strings.Join(all, "\n")))
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) { s.memos.Drop(key) }

// clientFor returns a client with the rights of the export's account.
func (s *Steps) clientFor(ctx context.Context, obj *v1alpha1.ExportState) (*engine.Client, error) {
	name := types.NamespacedName{Namespace: obj.Namespace, Name: cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount)}
	return account.Client(ctx, s.Client, s.Target, name)
}
