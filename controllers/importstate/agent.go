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
func (s *Steps) importToAgent(ctx context.Context, req *reconcile.Request[*v1alpha1.ImportState], want desired, c dynamic.Interface, revision string) reconcile.Outcome {
	obj, endpoint := req.Object, agentOf(&req.Object.Spec)
	agent, err := dialAgent(ctx, c, obj.Namespace, endpoint)
	if err != nil {
		return failureOutcome(err, revision)
	}
	defer agent.Close()
	opts := planOptions{overwrite: obj.Spec.Conflict == v1alpha1.OverwriteConflict, dryRun: obj.Spec.DryRun, resend: req.Requested, hash: s.hash}
	dest := destination{agent: endpoint.Address}
	p := newAgentPlan(want, previousStatus(&obj.Status, dest), opts)
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
			req.Event(corev1.EventTypeNormal, "StateSent", "sent "+statestore.CountSummary(states, credentials)+" to the agent at "+dest.agent)
		}
		if len(failures) > 0 {
			p.report(&obj.Status, dest)
			return sendFailure(failures, states+credentials > 0, revision)
		}
	}
	p.report(&obj.Status, dest)
	out := p.outcome(want, dest, revision, false)
	if _, done := out.(reconcile.Done); done {
		obj.Status.LastAppliedRevision = revision
	}
	return out
}

// dialAgent returns a client for an agent, with the credentials of its Secret. The caller closes
// it.
func dialAgent(ctx context.Context, c dynamic.Interface, namespace string, endpoint *appsv1.AgentEndpoint) (*agentclient.Client, error) {
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
		return nil, reconcile.NewTerminalError(AgentSecretInvalidReason, "Secret %s of spec.store.agent.secretRef: %w", name, err)
	}
	if err != nil {
		return nil, reconcile.NewTerminalError(AgentAddressRefusedReason, "spec.store.agent.address: %w", err)
	}
	return a, nil
}

// send sends the entries of the plan one by one: if an agent failed within an export with several
// entries, it would be unknown which ones it stored, and all would be sent and overwritten
// repeatedly. It returns the number of entries that were sent, and the errors of the others.
func (p *importPlan) send(ctx context.Context, a *agentclient.Client, want desired) (states, credentials int, failures []error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	for _, c := range want.clusters {
		row := p.clusterRow(c.ID.Key())
		if row == nil || !writes(row.Action) {
			continue
		}
		if err := sendExport(ctx, a, []*state.Cluster{c}, nil); err != nil {
			row.Message = err.Error()
			failures = append(failures, fmt.Errorf("%s: %w", row.Key, err))
			if affectsAll(err) {
				return states, credentials, failures
			}
			continue
		}
		confirmRow(row, v1alpha1.StateSent)
		states++
	}
	for _, c := range want.credentials {
		row := p.credentialsRow(c.Cloud)
		if row == nil || !writes(row.Action) {
			continue
		}
		if err := sendExport(ctx, a, nil, []*state.Credentials{c}); err != nil {
			row.Message = err.Error()
			failures = append(failures, fmt.Errorf("credentials of %s: %w", row.Cloud, err))
			if affectsAll(err) {
				return states, credentials, failures
			}
			continue
		}
		confirmCredentialsRow(row, v1alpha1.StateSent)
		credentials++
	}
	return states, credentials, failures
}

// clusterRow returns the row of a cluster; nil if there is none.
func (p *importPlan) clusterRow(key string) *v1alpha1.ImportedCluster {
	for i := range p.clusters {
		if p.clusters[i].Key == key {
			return &p.clusters[i]
		}
	}
	return nil
}

func (p *importPlan) credentialsRow(name string) *v1alpha1.ImportedCredentials {
	for i := range p.credentials {
		if p.credentials[i].Cloud == name {
			return &p.credentials[i]
		}
	}
	return nil
}

// sendExport sends entries in the export format of ksctl.
func sendExport(ctx context.Context, a *agentclient.Client, clusters []*state.Cluster, credentials []*state.Credentials) error {
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
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return !agentErr.Answered
}

// sendFailure returns the outcome of failed sends. If some entries were sent before the timeout,
// the rest is sent after a second.
func sendFailure(failures []error, anySent bool, revision string) reconcile.Outcome {
	last := failures[len(failures)-1]
	if addressErr, refused := errors.AsType[*agentclient.AddressError](last); refused {
		return reconcile.Stalled{Err: fmt.Errorf("spec.store.agent.address: %w", addressErr), Reason: AgentAddressRefusedReason, Revision: revision}
	}
	agentErr, ok := errors.AsType[*agentclient.Error](last)
	switch {
	case ok && !agentErr.Answered:
		out := reconcile.Retry{Err: fmt.Errorf("spec.store.agent: %w", agentErr), Reason: AgentUnreachableReason, Revision: revision}
		if anySent && agentErr.Code == codes.DeadlineExceeded {
			out.RequeueAfter = time.Second
		}
		return out
	case ok && affectsAll(agentErr):
		return reconcile.Retry{Err: fmt.Errorf("spec.store.agent: %w", agentErr), Reason: AgentFailedReason, Revision: revision}
	}
	var messages []string
	for _, err := range failures {
		messages = append(messages, err.Error())
	}
	return reconcile.Retry{Err: errors.New(statestore.JoinMessages(messages)), Reason: AgentFailedReason, Revision: revision}
}
