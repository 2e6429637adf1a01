package importstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// sendTimeout bounds the time of sending in one reconcile. It is the timeout of ksctl itself. The
// next reconcile sends the rest.
const sendTimeout = time.Minute

// maxConcurrentSends bounds the number of imports that wait for their agents, so that agents that
// hang do not block imports into local stores.
const maxConcurrentSends = 4

// sendRetryDelay is the delay of an import that exceeds maxConcurrentSends.
const sendRetryDelay = time.Second

// agentOf returns the agent of a spec; nil if the import writes to a ksctl store.
func agentOf(spec *v1alpha1.ImportStateSpec) *appsv1.AgentEndpoint {
	if spec.Store == nil {
		return nil
	}
	return spec.Store.Agent
}

// importToAgent sends the entries to an agent that have changed since they were last sent, or all
// entries if a user requested the reconcile.
func (s *Steps) importToAgent(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], want desired,
	c dynamic.Interface, revision string) reconcile.Outcome {
	obj, endpoint := req.Object, agentOf(&req.Object.Spec)
	agent, err := dialAgent(ctx, c, obj.Namespace, endpoint)
	if err != nil {
		return content.RenderOutcome(err, revision)
	}
	defer agent.Close()
	opts := planOptions{agent: true, overwrite: obj.Spec.Conflict == v1alpha1.OverwriteConflict,
		dryRun: obj.Spec.DryRun, resend: req.Requested, hash: s.hash}
	dest := destination{agent: endpoint.Address}
	p := newPlan(want, statestore.Contents{}, previousStatus(&obj.Status, dest), opts)
	if opts.dryRun {
		return p.preview(&obj.Status, want, dest, revision)
	}
	hasWrites := len(p.states)+len(p.secrets) > 0
	if hasWrites {
		defer s.sends.Add(-1)
		if s.sends.Add(1) > maxConcurrentSends {
			return reconcile.Deferred{RequeueAt: s.Clock.Now().Add(sendRetryDelay)}
		}
	}
	warnDestinationChange(req, dest)
	if hasWrites {
		p.announce(opts)
		// The status of an earlier failed attempt may already mark the same entries.
		if obj.Status.Agent != dest.agent || !p.isAnnounced(&obj.Status) {
			p.report(&obj.Status, dest)
			if err := req.Persist(ctx, "sending to the agent at "+dest.agent); err != nil {
				return reconcile.Retry{Err: err, Revision: revision}
			}
		}
		states, credentials, failures := p.send(ctx, agent, want)
		if states+credentials > 0 {
			req.Event(corev1.EventTypeNormal, "StateSent", "sent "+statestore.CountSummary(states, credentials)+
				" to the agent at "+dest.agent)
		}
		if len(failures) > 0 {
			p.report(&obj.Status, dest)
			return sendFailure(failures, states+credentials > 0, revision)
		}
	}
	return p.finish(&obj.Status, want, dest, revision)
}

// dialAgent returns a client for an agent, with the credentials of its Secret. The caller closes
// it.
func dialAgent(ctx context.Context, c dynamic.Interface, namespace string,
	endpoint *appsv1.AgentEndpoint) (*agentclient.Client, error) {
	var (
		data map[string][]byte
		name client.ObjectKey
	)
	if endpoint.SecretRef != nil {
		name = client.ObjectKey{Namespace: namespace, Name: endpoint.SecretRef.Name}
		secret, err := readSecret(ctx, c, name, "spec.store.agent")
		if err != nil {
			return nil, err
		}
		data = secret.Data
	}
	a, err := agentclient.Dial(*endpoint, data)
	if _, invalid := errors.AsType[*agentclient.SecretError](err); invalid {
		return nil, reconcile.NewTerminalError(v1alpha1.AgentSecretInvalidReason,
			"Secret %s of spec.store.agent.secretRef: %w", name, err)
	}
	if err != nil {
		return nil, reconcile.NewTerminalError(v1alpha1.AgentAddressRefusedReason, "spec.store.agent.address: %w", err)
	}
	return a, nil
}

// send sends the entries of the plan one by one: if an agent failed within an export with several
// entries, it would be unknown which ones it stored, and all would be sent and overwritten
// repeatedly. It returns the number of entries that were sent, and the errors of the others.
func (p *importPlan) send(ctx context.Context, a *agentclient.Client,
	want desired) (states, credentials int, failures []error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	stop := false // sending another entry would fail, too
	send := func(rows []v1alpha1.ImportedCluster, key, label string, clusters []*state.Cluster,
		secrets []*state.Credentials) (sent int) {
		i := slices.IndexFunc(rows, func(row v1alpha1.ImportedCluster) bool { return row.Key == key })
		if stop || i < 0 || !writes(rows[i].Action) {
			return 0
		}
		if err := sendExport(ctx, a, clusters, secrets); err != nil {
			rows[i].Message = err.Error()
			failures = append(failures, fmt.Errorf("%s: %w", label, err))
			stop = affectsAll(err)
			return 0
		}
		confirmRow(&rows[i], v1alpha1.StateSent)
		return 1
	}
	for _, c := range want.clusters {
		states += send(p.clusters, c.ID.Key(), c.ID.Key(), []*state.Cluster{c}, nil)
	}
	for _, c := range want.credentials {
		credentials += send(p.credentials, c.Cloud, "credentials of "+c.Cloud, nil, []*state.Credentials{c})
	}
	return states, credentials, failures
}

// sendExport sends entries in the export format of ksctl.
func sendExport(ctx context.Context, a *agentclient.Client, clusters []*state.Cluster,
	credentials []*state.Credentials) error {
	export, err := state.Export(clusters, credentials)
	if err != nil {
		return err
	}
	return a.Import(ctx, export)
}

// affectsAll reports whether sending another entry would fail with the same error.
func affectsAll(err error) bool {
	agentErr, ok := errors.AsType[*agentclient.Error](err)
	if !ok {
		_, refused := errors.AsType[*agentclient.AddressError](err)
		return refused
	}
	switch agentErr.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated, codes.PermissionDenied,
		codes.Unimplemented:
		return true
	}
	return !agentErr.Answered
}

// sendFailure returns the outcome of failed sends. If some entries were sent before the timeout,
// the rest is sent after a second.
func sendFailure(failures []error, anySent bool, revision string) reconcile.Outcome {
	last := failures[len(failures)-1]
	if addressErr, refused := errors.AsType[*agentclient.AddressError](last); refused {
		return reconcile.Stalled{Err: fmt.Errorf("spec.store.agent.address: %w", addressErr),
			Reason: v1alpha1.AgentAddressRefusedReason, Revision: revision}
	}
	out := reconcile.Retry{Reason: v1alpha1.AgentFailedReason, Revision: revision}
	if agentErr, ok := errors.AsType[*agentclient.Error](last); ok && affectsAll(agentErr) {
		out.Err = fmt.Errorf("spec.store.agent: %w", agentErr)
		if !agentErr.Answered {
			out.Reason = v1alpha1.AgentUnreachableReason
			if anySent && agentErr.Code == codes.DeadlineExceeded {
				out.RequeueAfter = time.Second
			}
		}
		return out
	}
	var messages []string
	for _, err := range failures {
		messages = append(messages, err.Error())
	}
	out.Err = errors.New(statestore.JoinMessages(messages))
	return out
}
