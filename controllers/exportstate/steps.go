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

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// maxAttempts bounds the writes in one reconcile that conflict with writes of other clients.
const maxAttempts = 5

// Steps reconciles ExportStates.
type Steps struct {
	// Client reads from the cache.
	Client client.Reader
	// Git commits to repositories.
	Git *git.Client
	// Encrypt encrypts files; nil: every export fails.
	Encrypt sops.Encrypter
	// Target is the cluster with the ksctl store.
	Target *engine.Target
	// DefaultServiceAccount is used if the spec names no service account; empty: such an object
	// is Stalled.
	DefaultServiceAccount string
	// SecretKey is the key of the hashes of exported entries.
	SecretKey []byte
	Clock     clock.PassiveClock

	caches reconcile.ObjectCache[*exportCache]
}

// exportCache is the in-memory state of an export between reconciles. It contains no unencrypted
// data.
type exportCache struct {
	// cacheKey identifies the commit that was read last, files the state of its files.
	cacheKey string
	files    map[string]targetFile
	// encrypted are encrypted documents that are not written yet, by file and hash.
	encrypted map[string][]byte
}

var _ reconcile.Steps[*v1alpha1.ExportState] = (*Steps)(nil)

// Reconcile implements reconcile.Steps: observe → plan → act → outcome.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState]) reconcile.Outcome {
	obj := req.Object
	ctx, cancel := reconcile.WithTimeout(ctx, &obj.Spec.Schedule)
	defer cancel()
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return reconcile.OutcomeOf(err, "")
	}
	namespace := statestore.NamespaceOf(obj.Spec.From)
	store, err := statestore.Read(ctx, c, namespace, obj.Spec.Credentials == v1alpha1.ExportCredentials)
	switch {
	case err != nil:
		return reconcile.Retry{Err: err}
	case store.External:
		return failureOutcome(reconcile.NewTerminalError(v1alpha1.ExternalStorageReason,
			"ksctl stores its states in a MongoDB, not in namespace %s: export them with ksctl", namespace))
	case !store.HasStates:
		return reconcile.Waiting{On: "namespace " + namespace + " has no ksctl store",
			For: []appsv1.WaitReference{{Type: appsv1.WaitReadiness, Kind: "ConfigMap", Namespace: namespace,
				Name: state.StoreConfigMap}}, Reason: v1alpha1.StoreNotFoundReason}
	}
	want, err := s.readDesired(&obj.Spec, store.Contents)
	if err != nil {
		return failureOutcome(err)
	}
	if err := s.skipConflicting(ctx, obj, &want); err != nil {
		return failureOutcome(err)
	}
	// never fails
	cache, _ := s.caches.Get(client.ObjectKeyFromObject(obj), obj.UID, func() (*exportCache, error) {
		return &exportCache{}, nil
	})
	target, err := s.newTarget(ctx, obj, c, cache)
	if err != nil {
		return failureOutcome(err)
	}
	defer target.close()
	s.resetOnTargetChange(req, target)
	return s.export(ctx, req, want, target, cache)
}

// skipConflicting marks the documents that older exports write to the same folder.
func (s *Steps) skipConflicting(ctx context.Context, obj *v1alpha1.ExportState, want *desired) error {
	to := obj.Spec.To.Git
	if to == nil {
		return nil
	}
	var exports v1alpha1.ExportStateList
	if err := s.Client.List(ctx, &exports, client.MatchingFields{byTarget: targetKey(obj.Namespace, to)},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	want.skipConflicting(conflictingExports(obj, exports.Items))
	return nil
}

// resetOnTargetChange resets the status if the target in the spec has changed. The files in the
// previous target are no longer managed.
func (s *Steps) resetOnTargetChange(req *reconcile.Request[*v1alpha1.ExportState], target exportTarget) {
	st := &req.Object.Status
	if st.Target == target.String() {
		return
	}
	if st.Target != "" {
		// The files stay even with the deletion policy Delete, because the export to the new target
		// may fail.
		req.Event(corev1.EventTypeWarning, "ExportKept", "files that were exported to "+st.Target+
			" stay there and are no longer managed")
	}
	st.Target, st.Secret, st.Clusters, st.Credentials, st.Digest, st.LastExportedRevision = target.String(), "", nil,
		nil, "", ""
}

// export writes the desired files to the target. It never overwrites concurrent writes of other
// clients.
func (s *Steps) export(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState], want desired,
	target exportTarget, cache *exportCache) reconcile.Outcome {
	obj := req.Object
	for range maxAttempts {
		have, err := target.readFiles(ctx, keysByFile(want, obj.Status))
		if err != nil {
			return failureOutcome(err)
		}
		p := newPlan(want, have, obj.Status, obj.Spec.Prune)
		err = s.act(ctx, req, target, &p, cache)
		switch {
		case errors.Is(err, errConflict):
			continue
		case err != nil:
			return failureOutcome(err)
		}
		s.report(obj, &p)
		return p.outcome(target.String(), target.size(), obj.Status.LastExportedRevision)
	}
	return reconcile.Retry{Reason: v1alpha1.TargetContendedReason, RequeueAfter: time.Second,
		Err: fmt.Errorf("writing to %s: %d conflicts with writes of other clients: retrying", target, maxAttempts)}
}

// keysByFile returns the keys of all files that an export has written or will write.
func keysByFile(want desired, before v1alpha1.ExportStateStatus) map[string]string {
	out := map[string]string{}
	for _, row := range slices.Concat(before.Clusters, before.Credentials) {
		out[row.File] = row.Key
	}
	for _, d := range want.documents {
		out[d.file] = d.key
	}
	return out
}

// act executes the plan. The status is written first, so that after a crash the next process
// recognizes the files in the target as its own.
func (s *Steps) act(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState], target exportTarget,
	p *exportPlan, cache *exportCache) error {
	obj := req.Object
	files, err := s.encrypt(ctx, &obj.Spec, p, cache)
	if err != nil {
		return err
	}
	if p.confirmed {
		obj.Status.LastExportedRevision, obj.Status.Secret = target.revision(), target.secretName()
	}
	if len(p.write)+len(p.remove) == 0 {
		return nil
	}
	if err := target.checkSize(files, p.remove); err != nil {
		return err
	}
	records := map[string]record{}
	for _, d := range p.write {
		records[d.file] = record{d.hash, statestore.HashBytes(s.SecretKey, files[d.file])}
	}
	p.announce(records)
	s.report(obj, p)
	obj.Status.Secret = target.secretName()
	if err := req.Persist(ctx, "writing to "+target.String()); err != nil {
		return err
	}
	revision, err := target.write(ctx, changeSet{files: files, remove: p.remove, message: commitMessage(obj, p)})
	if err != nil {
		return err
	}
	obj.Status.LastExportedRevision = revision
	if len(p.restored) > 0 {
		req.Event(corev1.EventTypeWarning, "ExportRestored",
			"files that another client changed or removed are written again: "+statestore.JoinMessages(p.restored))
	}
	req.Event(corev1.EventTypeNormal, "StateExported", p.summary()+" to "+target.String())
	p.markWritten()
	cache.encrypted = nil
	return nil
}

// encrypt returns the encrypted documents to write. A document that would contain unencrypted
// secrets is marked as invalid in the plan.
func (s *Steps) encrypt(ctx context.Context, spec *v1alpha1.ExportStateSpec, p *exportPlan,
	cache *exportCache) (map[string][]byte, error) {
	out, encrypted := map[string][]byte{}, map[string][]byte{}
	defer func() { cache.encrypted = encrypted }()
	for _, d := range slices.Clone(p.write) {
		cacheKey := d.file + " " + d.hash
		data := cache.encrypted[cacheKey]
		if data == nil {
			if s.Encrypt == nil {
				return nil, reconcile.NewTerminalError(string(sops.Unavailable),
					"this controller does not support encryption")
			}
			var err error
			data, err = state.Encrypt(ctx, d.file, d.data, spec.Recipients, s.Encrypt)
			if reason := invalidReason(err); reason != "" {
				p.markInvalid(d.file, reason, statestore.Truncate(err.Error(), 300))
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.file, err)
			}
		}
		out[d.file], encrypted[cacheKey] = data, data
	}
	return out, nil
}

// invalidReason returns the reason why a document cannot be encrypted; "" for other errors.
func invalidReason(err error) string {
	plaintext, ok := errors.AsType[*state.EncryptError](err)
	if ok && len(plaintext.Readable) > 0 {
		return v1alpha1.PlaintextSecretsReason
	}
	if e, invalid := errors.AsType[*sops.Error](err); ok || invalid && e.Reason == sops.FileInvalid {
		return v1alpha1.InvalidStateReason
	}
	return ""
}

// report sets the rows and the digest in the status.
func (s *Steps) report(obj *v1alpha1.ExportState, p *exportPlan) {
	obj.Status.Clusters, obj.Status.Credentials = p.clusters, p.credentials
	var all []string
	p.eachRow(func(row *v1alpha1.ExportedFile) {
		if row.Action == v1alpha1.ExportInSync {
			all = append(all, row.File+" "+parseRecord(row.Written).documentHash)
		}
	})
	obj.Status.Digest = statestore.HashBytes(s.SecretKey, []byte(strings.Join(all, "\n")))
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) { s.caches.Drop(key) }

// clientFor returns a client with the permissions of the export's account.
func (s *Steps) clientFor(ctx context.Context, obj *v1alpha1.ExportState) (*engine.Client, error) {
	return reconcile.RecordedAccountClient(ctx, s.Client, s.Target, obj,
		cmp.Or(obj.Spec.ServiceAccountName, s.DefaultServiceAccount))
}
