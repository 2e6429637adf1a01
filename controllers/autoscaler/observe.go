package autoscaler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// observation is the observed state of a cluster and its machines.
type observation struct {
	target *engine.Target
	client *engine.Client
	// cluster is read from the cache.
	cluster     *clusterv1.KsctlCluster
	workerNames workerNames
	nodes       []*corev1.Node
	machines    machines
	// reported is the status of the operation in progress, as the agent reports it. agentErr is the
	// error of the last call of the agent; nil if it succeeded.
	reported session.OperationStatus
	agentErr error
	// ksctlAgent is true if the agent is ksctl's own, which cannot list workers and responds when
	// an operation is done.
	ksctlAgent bool
	// knownWorkers is the number of workers that is known without the imported state.
	// importedWorkers is the number in the imported state; -1 if there is no imported state.
	knownWorkers, importedWorkers int32
	// overdue contains the indexes of the machines that have not joined in time. requeueAt is the
	// earliest time at which the observation changes without an event; zero if there is none.
	overdue   map[int32]bool
	requeueAt time.Time
}

// observeCluster resolves the target cluster and reads its nodes.
func (s *Steps) observeCluster(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler],
	localClient *engine.Client) (*observation, error) {
	obj := req.Object
	ref := &appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: obj.Spec.ClusterRef.Name}}
	user := target.User{Key: s.ownerKey(obj), Spec: ref, Account: s.account(obj), LocalClient: localClient,
		Empty: len(obj.Status.Pools) == 0, Deleting: obj.DeletionTimestamp != nil, Requested: req.Requested}
	e := s.state.entry(client.ObjectKeyFromObject(obj))
	e.uid, e.owner = obj.UID, user.Key
	at, err := s.Targets.Resolve(ctx, user)
	if err != nil {
		return nil, err
	}
	seen := &observation{target: at.Target, client: at.Client, cluster: &clusterv1.KsctlCluster{}}
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: obj.Spec.ClusterRef.Name},
		seen.cluster); err != nil {
		return nil, err
	}
	seen.workerNames = newWorkerNames(clusterName(seen.cluster))
	nodes, synced, err := s.NodeWatches.Nodes(client.ObjectKeyFromObject(obj), at.Target, at.WatchClient)
	switch {
	case err != nil:
		return nil, err
	case !synced:
		return nil, reconcile.NewWaitingError(clusterv1.ProbingReason, waitForCluster(obj),
			"KsctlCluster %s: the nodes are being listed", seen.cluster.Name)
	}
	seen.nodes = nodes
	return seen, nil
}

// clusterName returns the name of a cluster in ksctl.
func clusterName(c *clusterv1.KsctlCluster) string {
	if c.Status.Facts != nil && c.Status.Facts.Name != "" {
		return c.Status.Facts.Name
	}
	return c.Name
}

// observe collects the state of a cluster and its machines, from the cluster and from the agent.
func (s *Steps) observe(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler],
	localClient *engine.Client) (*observation, error) {
	seen, err := s.observeCluster(ctx, req, localClient)
	if err != nil {
		return nil, err
	}
	obj := req.Object
	key := client.ObjectKeyFromObject(obj)
	cfg, err := s.sessionConfig(ctx, obj, seen, localClient)
	if err != nil {
		return nil, err
	}
	report, known := s.AgentSessions.LastReport(key, cfg)
	if !known {
		return nil, agentError(obj, report.Err)
	}
	seen.addReport(obj, report, s.state.entry(key), s.Clock.Now())
	return seen, nil
}

// addReport adds the report of the agent, and the machines that follow from it and from the nodes.
func (seen *observation) addReport(obj *clusterv1.KsctlAutoScaler, report session.Report, e *entry, now time.Time) {
	seen.reported, seen.agentErr, seen.ksctlAgent = report.Operation, report.Err, report.KsctlAgent
	l := newWorkerList(report, seen.cluster, &obj.Status, now)
	seen.knownWorkers, seen.importedWorkers = l.knownWorkers, l.importedWorkers
	seen.machines = newMachines(seen.workerNames, obj.Spec.Pools, seen.nodes, l)
	if op := obj.Status.Operation; report.KsctlAgent && session.IsInProgress(op) &&
		seen.machines.size() > max(op.From, op.DesiredWorkers) && seen.reported.ID != op.ID {
		// ksctl's own agent would forget or delete the workers beyond the requested number.
		seen.reported = session.OperationStatus{ID: op.ID, Phase: session.Failed, Code: clusterv1.CodeNoAnswer,
			Message: "workers were created by others during the operation"}
	}
	seen.overdue, seen.requeueAt = e.trackJoins(&seen.machines, obj.Status.Operation, joinTimeout(&obj.Spec), now)
	seen.machines.markLost(seen.overdue, obj.Status.Operation, effectiveMode(obj), seen.ksctlAgent)
}

// joinTimeout returns the time from the request for a machine until it must have joined. After
// that, its creation is reported as failed. Cluster Autoscaler's own timeout is a little longer.
func joinTimeout(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	return settings.ProvisionTime(spec) * 9 / 10
}

// sessionConfig returns the configuration of the session with the agent.
func (s *Steps) sessionConfig(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *observation,
	localClient *engine.Client) (session.Config, error) {
	endpoint := obj.Spec.Agent
	var data map[string][]byte
	if ref := endpoint.SecretRef; ref != nil {
		secret, found, err := s.readSecret(ctx, localClient, client.ObjectKeyFromObject(obj),
			types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name})
		if err != nil {
			return session.Config{},
				reconcile.NewTransientError(clusterv1.AgentAccessReason, "spec.agent.secretRef: reading Secret %s: %w",
					ref.Name, err)
		}
		if !found {
			return session.Config{}, reconcile.NewTransientError(clusterv1.AgentAccessReason,
				"spec.agent.secretRef: Secret %s does not exist: create it or correct the reference", ref.Name)
		}
		data = secret.Data
	}
	id, err := json.Marshal([]any{endpoint, data})
	if err != nil {
		return session.Config{}, err
	}
	cfg := session.Config{Hash: sha256.Sum256(id), Cluster: clusterName(seen.cluster),
		ScaleTimeout: settings.ProvisionTime(&obj.Spec)}
	cfg.Dial = func() (session.Conn, error) { return agentclient.Dial(endpoint, data) }
	return cfg, nil
}

// waitForCluster returns the wait for a response of the cluster.
func waitForCluster(obj *clusterv1.KsctlAutoScaler) appsv1.WaitReference {
	return appsv1.WaitReference{Type: appsv1.WaitResponse, Kind: clusterv1.KsctlClusterKind, Namespace: obj.Namespace,
		Name: obj.Spec.ClusterRef.Name}
}

// agentError returns the error of a step that needs a report of the agent. err is the error of the
// last call; nil if the agent has not responded yet.
func agentError(obj *clusterv1.KsctlAutoScaler, err error) error {
	var (
		secret  *agentclient.SecretError
		address *agentclient.AddressError
	)
	switch {
	case err == nil:
		return reconcile.NewWaitingError(clusterv1.ProbingReason, appsv1.WaitReference{Type: appsv1.WaitResponse,
			Kind: "Agent", Name: obj.Spec.Agent.Address}, "agent %s: waiting for its first response",
			obj.Spec.Agent.Address)
	case errors.As(err, &secret) && obj.Spec.Agent.SecretRef != nil:
		return reconcile.NewTerminalError(clusterv1.AgentAccessReason, "spec.agent.secretRef: Secret %s: %w",
			obj.Spec.Agent.SecretRef.Name, err)
	case errors.As(err, &address):
		return reconcile.NewTerminalError(clusterv1.AgentAccessReason, "spec.agent.address: %w", err)
	}
	return reconcile.NewTransientError(clusterv1.AgentUnreachableReason,
		"%s: %w; nothing is scaled until the agent responds", obj.Spec.Agent.Address, err)
}
