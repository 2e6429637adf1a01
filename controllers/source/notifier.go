package source

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/commitstatus"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact"
)

// tokenKey is the key of the token in the Secret for commit statuses, as in Flux.
const tokenKey = "token"

// leaderRetryInterval is the delay before leadership is checked again.
const leaderRetryInterval = 5 * time.Second

// Notifier writes the state of installs as commit statuses to the commits of their sources. It is a
// separate reconciler, so that no other reconciler waits for a Git server. It writes one commit
// status per reconcile.
type Notifier struct {
	// Client reads from the cache.
	Client client.Reader
	// Steps reads the Secrets.
	Steps  *Steps
	Events record.EventRecorder
	// CheckLeader returns an error if another process may be the leader; nil: no other process can
	// be.
	CheckLeader func() error
	// Count is called for each commit status, with the type of the Git server and the result.
	Count func(server, result string)
	Clock clock.PassiveClock

	states reconcile.ObjectCache[*sourceState]
}

// httpClient returns the client for servers without a certificate authority or a proxy of their
// own.
var httpClient = sync.OnceValue(artifact.NewHTTPClient)

// sourceState is the in-memory state of one source.
type sourceState struct {
	// spec is spec.commitStatus when the commit statuses were written.
	spec appsv1.SourceCommitStatus
	url  string
	// secretVersions are the versions of the used Secrets.
	secretVersions string
	tracker        commitstatus.Tracker
	backoff        commitstatus.Backoff
}

// reconcile writes the next due commit status of a source, if there is one.
func (t *Notifier) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	src := &appsv1.KsctlSource{}
	if err := client.IgnoreNotFound(t.Client.Get(ctx, key, src, client.UnsafeDisableDeepCopy)); err != nil {
		return 0, err
	}
	if src.Spec.CommitStatus == nil || src.Spec.Git == nil || !src.DeletionTimestamp.IsZero() {
		t.states.Drop(key)
		return 0, nil
	}
	if src.Spec.Suspend {
		return 0, nil
	}
	state, err := t.stateOf(ctx, src)
	if err != nil {
		return 0, err
	}
	desired, err := t.desiredStatuses(ctx, src)
	if err != nil {
		return 0, err
	}
	now := t.Clock.Now()
	next, wait, ok := state.tracker.Next(desired, now)
	if !ok {
		return wait, nil
	}
	if t.CheckLeader != nil {
		if err := t.CheckLeader(); err != nil {
			log.FromContext(ctx).Info("commit status not written: not the leader", "why", err.Error())
			return leaderRetryInterval, nil
		}
	}
	if wait := state.backoff.Wait(now); wait > 0 {
		return wait, nil
	}
	err = t.post(ctx, src, next)
	if ctx.Err() != nil {
		return 0, ctx.Err() // the process is stopping
	}
	t.recordResult(ctx, src, state, next, err)
	return time.Millisecond, nil // write the next commit status
}

// recordResult records the result of writing a commit status, and emits an event if users must
// know.
func (t *Notifier) recordResult(ctx context.Context, src *appsv1.KsctlSource, state *sourceState,
	next commitstatus.Next, err error) {
	now := t.Clock.Now()
	result, notify := state.backoff.Record(err, now)
	t.Count(string(src.Spec.CommitStatus.Type), string(result))
	if result == commitstatus.Written || result == commitstatus.Invalid {
		state.tracker.Posted(next, now)
	} else {
		state.tracker.Failed(next)
	}
	if err == nil {
		log.FromContext(ctx).V(1).Info("commit status written", "commit", next.Commit, "context", next.Context, "state",
			next.State)
		return
	}
	log.FromContext(ctx).Info("writing the commit status failed", "commit", next.Commit, "context", next.Context, "why",
		err.Error())
	if notify {
		t.Events.Event(src, corev1.EventTypeWarning, appsv1.CommitStatusFailedReason, "commit statuses: "+err.Error())
	}
}

// secretReadError returns errors about the Secret unchanged, because a user has to fix them. It
// converts errors of the API server to transient errors.
func secretReadError(err error) error {
	if _, ok := errors.AsType[*gitsecret.Error](err); ok {
		return err
	}
	return &commitstatus.Error{Result: commitstatus.Failed, Message: err.Error()}
}

// stateOf returns the in-memory state of a source. It resets the state if the repository or
// spec.commitStatus has changed, and the backoff if a Secret has changed.
func (t *Notifier) stateOf(ctx context.Context, src *appsv1.KsctlSource) (*sourceState, error) {
	var versions strings.Builder
	for _, name := range []string{src.Spec.CommitStatus.SecretRef.Name, refName(src.Spec.Git.SecretRef),
		refName(src.Spec.Git.ProxySecretRef)} {
		meta := reconcile.PartialMetadata("", "Secret")
		if name != "" { // not found: the Secret does not exist, or is not watched
			if err := client.IgnoreNotFound(t.Client.Get(ctx, client.ObjectKey{Namespace: src.Namespace, Name: name},
				meta)); err != nil {
				return nil, err
			}
		}
		versions.WriteString(name + "=" + string(meta.UID) + "/" + meta.ResourceVersion + ";")
	}
	// never fails
	state, _ := t.states.Get(client.ObjectKeyFromObject(src), src.UID, func() (*sourceState, error) {
		return &sourceState{}, nil
	})
	if state.spec != *src.Spec.CommitStatus || state.url != src.Spec.Git.URL {
		*state = sourceState{spec: *src.Spec.CommitStatus, url: src.Spec.Git.URL, secretVersions: versions.String()}
	}
	if state.secretVersions != versions.String() {
		state.secretVersions = versions.String()
		state.backoff.Reset()
	}
	return state, nil
}

// desiredStatuses returns the desired commit statuses of the installs of a source.
func (t *Notifier) desiredStatuses(ctx context.Context, src *appsv1.KsctlSource) ([]commitstatus.Desired, error) {
	var found appsv1.KsctlInstallList
	if err := t.Client.List(ctx, &found, client.MatchingFields{bySource: client.ObjectKeyFromObject(src).String()},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	offered := offeredCommit(src)
	var out []commitstatus.Desired
	for i := range found.Items {
		in := &found.Items[i]
		if !in.DeletionTimestamp.IsZero() {
			continue
		}
		w := commitstatus.Desired{Install: in.UID}
		if s, ok := commitstatus.StatusOf(in, src); ok {
			w.Status, w.IsCurrent, w.NotBefore = &s, s.Commit == offered, commitstatus.NotBefore(in)
		}
		out = append(out, w)
	}
	return out, nil
}

// post writes a commit status, with the current content of the Secrets.
func (t *Notifier) post(ctx context.Context, src *appsv1.KsctlSource, next commitstatus.Next) error {
	target, err := commitstatus.TargetOf(src)
	if err != nil {
		return err
	}
	const field = "spec.commitStatus.secretRef"
	secret, err := t.Steps.readSecret(ctx, src.Namespace, src.Spec.CommitStatus.SecretRef.Name, field)
	if err != nil {
		return secretReadError(err)
	}
	token := gitsecret.TrimmedValue(secret, tokenKey)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return gitsecret.NewInvalid("Secret %s/%s of %s needs a %s of one line of printable ASCII characters without "+
			"spaces: correct the Secret", secret.Namespace, secret.Name, field, tokenKey)
	}
	gitAccess, err := t.Steps.gitAccess(ctx, src.Namespace, src.Spec.Git)
	if err != nil {
		return secretReadError(err)
	}
	if ca := secret.Data[gitsecret.CAKey]; len(ca) > 0 {
		gitAccess.CA = ca
	}
	config, err := gitAccess.TLSConfig()
	if err != nil {
		return err
	}
	a := commitstatus.Access{HTTP: httpClient(), Token: token, TokenSource: "the Secret " + src.Namespace + "/" +
		secret.Name}
	if config != nil || gitAccess.Proxy != nil {
		a.HTTP = artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: config, Proxy: gitAccess.Proxy})
		defer a.HTTP.CloseIdleConnections()
	}
	if gitAccess.Proxy != nil {
		if password, ok := gitAccess.Proxy.User.Password(); ok {
			a.Secrets = append(a.Secrets, password)
		}
	}
	return target.Post(ctx, a, next.Status, t.Clock.Now())
}
