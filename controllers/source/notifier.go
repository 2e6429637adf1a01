package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/commitstatus"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact"
)

// CommitStatusFailedReason is that of an event: how installs stand can't be written to commits.
const CommitStatusFailedReason = "CommitStatusFailed"

// tokenKey of a Secret for commit statuses, as Flux names it.
const tokenKey = "token"

// leadsAgain is when a process that may not lead any more asks again.
const leadsAgain = 5 * time.Second

// Teller writes to the commits of sources how installs stand that read them. It is a
// reconciler of its own, so that no other one waits for a Git server, and
// looks at one source at a time, one statement after the other.
type Teller struct {
	// Client reads from the cache.
	Client client.Reader
	// Steps read Secrets.
	Steps  *Steps
	Events record.EventRecorder
	// Leads returns an error when another process may lead by now; nil: none ever does.
	Leads func() error
	// Count is called for each commit status, with the type of the Git server and the result.
	Count func(server, result string)
	Clock clock.PassiveClock

	http func() *http.Client
	mu   sync.Mutex
	told map[types.NamespacedName]*telling
}

// telling is what is remembered of one source.
type telling struct {
	uid types.UID
	// wish is the commit status of the spec that statements were written for.
	wish appsv1.SourceCommitStatus
	url  string
	// secrets are the versions of those that are used.
	secrets string
	ledger  commitstatus.Ledger
	gate    commitstatus.Gate
}

// NewTeller makes a Teller.
func NewTeller(c client.Reader, steps *Steps, events record.EventRecorder, leads func() error, count func(server, result string), clock clock.PassiveClock) *Teller {
	return &Teller{Client: c, Steps: steps, Events: events, Leads: leads, Count: count, Clock: clock,
		http: sync.OnceValue(artifact.NewHTTPClient), told: map[types.NamespacedName]*telling{}}
}

// Reconcile implements reconcile.Reconciler: it writes the statement of a source that is
// due, if there is one.
func (t *Teller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	src := &appsv1.KsctlSource{}
	if err := t.Client.Get(ctx, req.NamespacedName, src, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if src.Spec.CommitStatus == nil || src.Spec.Git == nil || !src.DeletionTimestamp.IsZero() {
		t.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if src.Spec.Suspend {
		return ctrl.Result{}, nil
	}
	mine, err := t.of(ctx, src)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := t.wanted(ctx, src)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := t.Clock.Now()
	next, wait, ok := mine.ledger.Next(wanted, now)
	if !ok {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if t.Leads != nil {
		if err := t.Leads(); err != nil {
			log.FromContext(ctx).Info("a commit status is not written", "why", err.Error())
			return ctrl.Result{RequeueAfter: leadsAgain}, nil
		}
	}
	if wait := mine.gate.Wait(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err = t.post(ctx, src, next)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // the process ends
	}
	t.ended(ctx, src, mine, next, err)
	return ctrl.Result{RequeueAfter: time.Millisecond}, nil // for the next one
}

// ended takes note of how a statement went, and tells people what they have to know.
func (t *Teller) ended(ctx context.Context, src *appsv1.KsctlSource, mine *telling, next commitstatus.Next, err error) {
	now := t.Clock.Now()
	result, tell := mine.gate.Ended(err, now)
	t.Count(string(src.Spec.CommitStatus.Type), string(result))
	if result == commitstatus.Written || result == commitstatus.Invalid {
		mine.ledger.Said(next, now)
	} else {
		mine.ledger.Failed(next)
	}
	if err == nil {
		log.FromContext(ctx).V(1).Info("wrote a commit status", "commit", next.Commit, "context", next.Context, "state", next.State)
		return
	}
	log.FromContext(ctx).Info("a commit status was not written", "commit", next.Commit, "context", next.Context, "why", err.Error())
	if tell {
		t.Events.Event(src, corev1.EventTypeWarning, CommitStatusFailedReason, "commit statuses: "+err.Error())
	}
}

// unread tells Secrets that a person must mend from an API server that does not answer.
func unread(err error) error {
	if _, ok := errors.AsType[*secretError](err); ok {
		return err
	}
	return &commitstatus.Error{Result: commitstatus.Failed, Message: err.Error()}
}

func (t *Teller) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}

// of is what is remembered of a source. What was said elsewhere counts for nothing, and
// what changed may mend what failed.
func (t *Teller) of(ctx context.Context, src *appsv1.KsctlSource) (*telling, error) {
	var versions strings.Builder
	for _, name := range []string{src.Spec.CommitStatus.SecretRef.Name, nameOf(src.Spec.Git.SecretRef), nameOf(src.Spec.Git.ProxySecretRef)} {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if name != "" { // or it is not among those that are watched
			if err := client.IgnoreNotFound(t.Client.Get(ctx, client.ObjectKey{Namespace: src.Namespace, Name: name}, meta)); err != nil {
				return nil, err
			}
		}
		versions.WriteString(name + "=" + string(meta.UID) + "/" + meta.ResourceVersion + ";")
	}
	key := client.ObjectKeyFromObject(src)
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.told[key]
	if mine == nil || mine.uid != src.UID || mine.wish != *src.Spec.CommitStatus || mine.url != src.Spec.Git.URL {
		mine = &telling{uid: src.UID, wish: *src.Spec.CommitStatus, url: src.Spec.Git.URL, secrets: versions.String()}
		t.told[key] = mine
	}
	if mine.secrets != versions.String() {
		mine.secrets = versions.String()
		mine.gate.Open()
	}
	return mine, nil
}

// wanted is what is to be said of the installs that read a source.
func (t *Teller) wanted(ctx context.Context, src *appsv1.KsctlSource) ([]commitstatus.Wanted, error) {
	var found appsv1.KsctlInstallList
	key := client.ObjectKeyFromObject(src)
	if err := t.Client.List(ctx, &found, client.MatchingFields{byOurs: key.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	offered := offeredBy(src)
	var out []commitstatus.Wanted
	for i := range found.Items {
		in := &found.Items[i]
		if !in.DeletionTimestamp.IsZero() {
			continue
		}
		w := commitstatus.Wanted{Install: in.UID}
		if s, ok := commitstatus.Of(in, src); ok {
			w.Statement, w.Offered, w.NotBefore = &s, s.Commit == offered, commitstatus.NotBefore(in)
		}
		out = append(out, w)
	}
	return out, nil
}

// post writes a statement, with what the Secrets hold now.
func (t *Teller) post(ctx context.Context, src *appsv1.KsctlSource, next commitstatus.Next) error {
	target, err := commitstatus.TargetOf(src)
	if err != nil {
		return err
	}
	const field = "spec.commitStatus.secretRef"
	secret, err := t.Steps.secret(ctx, src.Namespace, src.Spec.CommitStatus.SecretRef.Name, field)
	if err != nil {
		return unread(err)
	}
	token := gitsecret.Line(secret, tokenKey)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return badSecret(SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s has no %s, or one that is not a line of letters, digits and signs: correct it", secret.Namespace, secret.Name, field, tokenKey))
	}
	reach, err := t.Steps.access(ctx, src.Namespace, src.Spec.Git)
	if err != nil {
		return unread(err)
	}
	if ca := secret.Data[gitsecret.CAKey]; len(ca) > 0 {
		reach.CA = ca
	}
	config, err := reach.TLS()
	if err != nil {
		return err
	}
	a := commitstatus.Access{HTTP: t.http(), Token: token, In: "the Secret " + src.Namespace + "/" + secret.Name}
	if config != nil || reach.Proxy != nil {
		a.HTTP = artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: config, Proxy: reach.Proxy})
		defer a.HTTP.CloseIdleConnections()
	}
	if reach.Proxy != nil {
		if password, ok := reach.Proxy.User.Password(); ok {
			a.Secrets = append(a.Secrets, password)
		}
	}
	return target.Post(ctx, a, next.Statement, t.Clock.Now())
}
