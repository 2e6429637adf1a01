package importstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// sendTimeout is how long an agent has to take what is sent in one pass: as long as ksctl
// gives it. What it did not take by then is left to the next.
const sendTimeout = time.Minute

// maxSending is how many imports wait for their agents at a time: others, whose store is
// here, are not kept by agents that hang.
const maxSending = 4

// sendAgain is how long an import waits for another's agent.
const sendAgain = time.Second

// agentOf is the agent of a spec; nil: ksctl's store is written to.
func agentOf(spec *v1alpha1.ImportStateSpec) *appsv1.AgentEndpoint {
	if spec.Store == nil {
		return nil
	}
	return spec.Store.Agent
}

// deliver has an agent bring what is wanted into its store: what is another than was sent
// last, and everything when somebody asks for it.
func (s *Steps) deliver(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], want wishes, c dynamic.Interface, revision string) reconcile.Outcome {
	obj, to := req.Object, agentOf(&req.Object.Spec)
	a, err := dial(ctx, c, obj.Namespace, to)
	if err != nil {
		return failed(err, revision)
	}
	defer a.Close()
	how := policy{overwrite: obj.Spec.Conflict == v1alpha1.OverwriteConflict, dryRun: obj.Spec.DryRun, again: req.Requested, hash: s.hash}
	at := place{agent: to.Address}
	p := newDelivery(want, former(&obj.Status, at), how)
	if how.dryRun {
		return p.preview(&obj.Status, want, at, revision)
	}
	due := len(p.states)+len(p.secrets) > 0
	if due {
		defer s.sending.Add(-1)
		if s.sending.Add(1) > maxSending {
			return reconcile.Deferred{Until: s.Clock.Now().Add(sendAgain)}
		}
	}
	takeLeave(req, at)
	if due {
		p.announce(how)
		// That of an earlier pass that failed says all there is to say.
		if obj.Status.Agent != at.agent || !p.announced(&obj.Status) {
			p.report(&obj.Status, at)
			if err := req.Persist(ctx, "sending to the agent at "+at.agent); err != nil {
				return reconcile.Retry{Err: err, Revision: revision}
			}
		}
		states, credentials, failures := p.send(ctx, a, want)
		if states+credentials > 0 {
			req.Event(corev1.EventTypeNormal, "StateSent", "sent "+statestore.Said(states, credentials)+" to the agent at "+at.agent)
		}
		if len(failures) > 0 {
			p.report(&obj.Status, at)
			return unsent(failures, states+credentials > 0, revision)
		}
	}
	p.report(&obj.Status, at)
	out := p.outcome(want, at, revision, false)
	if _, done := out.(reconcile.Done); done {
		obj.Status.LastAppliedRevision = revision
	}
	return out
}

// dial prepares to speak with an agent, with what its Secret holds.
func dial(ctx context.Context, c dynamic.Interface, namespace string, to *appsv1.AgentEndpoint) (*agentclient.Client, error) {
	var (
		data map[string][]byte
		name client.ObjectKey
	)
	if to.SecretRef != nil {
		name = client.ObjectKey{Namespace: namespace, Name: to.SecretRef.Name}
		secret, err := readSecret(ctx, c, name, "spec.store.agent")
		if err != nil {
			return nil, err
		}
		data = secret.Data
	}
	a, err := agentclient.Dial(*to, data)
	if _, bad := errors.AsType[*agentclient.SecretError](err); bad {
		return nil, fail(AgentSecretInvalidReason, "the Secret %s of spec.store.agent.secretRef: %w", name, err)
	}
	if err != nil {
		return nil, fail(AgentAddressRefusedReason, "spec.store.agent.address: %w", err)
	}
	return a, nil
}

// send sends what the plan says, one by one: of an export that an agent refuses in the middle,
// nobody knows what was taken, and all of it would be sent, and overwritten, again and again. It
// says how many entries were taken, and why the others were not.
func (p *plan) send(ctx context.Context, a *agentclient.Client, want wishes) (states, credentials int, failures []error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	for _, c := range want.clusters {
		row := p.cluster(c.ID.Key())
		if row == nil || !writes(row.Action) {
			continue
		}
		if err := give(ctx, a, []*state.Cluster{c}, nil); err != nil {
			row.Message = err.Error()
			failures = append(failures, fmt.Errorf("%s: %w", row.Key, err))
			if hopeless(err) {
				return states, credentials, failures
			}
			continue
		}
		now(row, v1alpha1.StateSent)
		states++
	}
	for _, c := range want.credentials {
		row := p.cloud(c.Cloud)
		if row == nil || !writes(row.Action) {
			continue
		}
		if err := give(ctx, a, nil, []*state.Credentials{c}); err != nil {
			row.Message = err.Error()
			failures = append(failures, fmt.Errorf("credentials of %s: %w", row.Cloud, err))
			if hopeless(err) {
				return states, credentials, failures
			}
			continue
		}
		nowCredentials(row, v1alpha1.StateSent)
		credentials++
	}
	return states, credentials, failures
}

// cluster and cloud are the lines of a plan; nil: there is none.
func (p *plan) cluster(key string) *v1alpha1.ImportedCluster {
	for i := range p.clusters {
		if p.clusters[i].Key == key {
			return &p.clusters[i]
		}
	}
	return nil
}

func (p *plan) cloud(name string) *v1alpha1.ImportedCredentials {
	for i := range p.credentials {
		if p.credentials[i].Cloud == name {
			return &p.credentials[i]
		}
	}
	return nil
}

// give sends an export, in the form of ksctl's.
func give(ctx context.Context, a *agentclient.Client, clusters []*state.Cluster, credentials []*state.Credentials) error {
	export, err := state.Export(clusters, credentials)
	if err != nil {
		return err
	}
	return a.Import(ctx, export)
}

// hopeless is true for an error that all that is sent after it would meet, too.
func hopeless(err error) bool {
	said, ok := errors.AsType[*agentclient.Error](err)
	if !ok {
		_, refused := errors.AsType[*agentclient.AddressError](err)
		return refused
	}
	switch said.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return !said.Answered
}

// unsent is the outcome of failures to send. Where some was sent before the agent's time was
// over, the rest follows at once.
func unsent(failures []error, some bool, revision string) reconcile.Outcome {
	last := failures[len(failures)-1]
	if bad, refused := errors.AsType[*agentclient.AddressError](last); refused {
		return reconcile.Stalled{Err: fmt.Errorf("spec.store.agent.address: %w", bad), Reason: AgentAddressRefusedReason, Revision: revision}
	}
	said, ok := errors.AsType[*agentclient.Error](last)
	switch {
	case ok && !said.Answered:
		out := reconcile.Retry{Err: fmt.Errorf("spec.store.agent: %w", said), Reason: AgentUnreachableReason, Revision: revision}
		if some && said.Code == codes.DeadlineExceeded {
			out.After = time.Second
		}
		return out
	case ok && hopeless(said):
		return reconcile.Retry{Err: fmt.Errorf("spec.store.agent: %w", said), Reason: AgentFailedReason, Revision: revision}
	}
	var messages []string
	for _, err := range failures {
		messages = append(messages, err.Error())
	}
	return reconcile.Retry{Err: errors.New(statestore.Lines(messages)), Reason: AgentFailedReason, Revision: revision}
}
