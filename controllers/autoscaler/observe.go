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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
	"github.com/ksctl/gitops/internal/clusters/target"
)

const (
	// defaultProvisionTime is spec.scaleUp.maxNodeProvisionTime when unset.
	defaultProvisionTime = 20 * time.Minute
)

// sight is what was observed of a cluster.
type sight struct {
	target *engine.Target
	client *engine.Client
	// cluster is as the cache has it.
	cluster *clusterv1.KsctlCluster
	hosts   hosts
	nodes   []*corev1.Node
	fleet   fleet
	// word of the agent on the operation at work, and why it says nothing now; nil: it answers.
	word     word
	agentErr error
	// plain is true for an agent of ksctl's own, that answers when it is done.
	plain bool
	// counted is how many workers there are where the imported state is not asked, and imported how
	// many that has, -1 where there is none.
	counted, imported int32
	// late are the machines that have not joined in time; next is when something is due here.
	late map[int32]bool
	next time.Time
}

// soonest has it looked at again at a time; zero: at none.
func (s *sight) soonest(at time.Time) {
	if !at.IsZero() && (s.next.IsZero() || at.Before(s.next)) {
		s.next = at
	}
}

// reach finds the way to the cluster, and its nodes.
func (s *Steps) reach(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler], here *engine.Client) (*sight, error) {
	obj := req.Object
	ref := &appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: obj.Spec.ClusterRef.Name}}
	user := target.User{Key: s.key(obj), Spec: ref, Account: s.account(obj).Name, Here: here, Empty: len(obj.Status.Pools) == 0, Requested: req.Requested}
	s.board.uses(client.ObjectKeyFromObject(obj), obj.UID, user.Key)
	at, err := s.Targets.Of(ctx, user)
	if err != nil {
		return nil, err
	}
	seen := &sight{target: at.Target, client: at.Client, cluster: &clusterv1.KsctlCluster{}}
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: obj.Spec.ClusterRef.Name}, seen.cluster); err != nil {
		return nil, err
	}
	seen.hosts = newHosts(clusterName(seen.cluster))
	nodes, synced, err := s.Watches.Nodes(client.ObjectKeyFromObject(obj), at.Target, at.Streams)
	switch {
	case err != nil:
		return nil, err
	case !synced:
		return nil, reconcile.Wait(AskingReason, "the nodes of KsctlCluster %s are being read", seen.cluster.Name)
	}
	seen.nodes = nodes
	return seen, nil
}

// clusterName is what ksctl calls a cluster.
func clusterName(c *clusterv1.KsctlCluster) string {
	if c.Status.Facts != nil && c.Status.Facts.Name != "" {
		return c.Status.Facts.Name
	}
	return c.Name
}

// observe is all that is known of a cluster and its machines.
func (s *Steps) observe(ctx context.Context, req *reconcile.Request[*clusterv1.KsctlAutoScaler], here *engine.Client) (*sight, error) {
	seen, err := s.reach(ctx, req, here)
	if err != nil {
		return nil, err
	}
	obj := req.Object
	key := client.ObjectKeyFromObject(obj)
	q, err := s.question(ctx, obj, seen, here)
	if err != nil {
		return nil, err
	}
	said, known := s.Links.ask(key, q)
	if !known {
		return nil, unheard(obj, said.err)
	}
	seen.word, seen.agentErr, seen.plain = said.word, said.err, said.plain
	l := listingOf(said, seen.cluster, &obj.Status, s.Clock.Now())
	seen.counted, seen.imported = l.counted, l.imported
	seen.fleet = newFleet(seen.hosts, obj.Spec.Pools, seen.nodes, l)
	if op := obj.Status.Operation; said.plain && atWork(op) && seen.fleet.size() > max(op.From, op.DesiredWorkers) && seen.word.id != op.ID {
		// ksctl's own agent would forget those that are more, or delete them.
		seen.word = word{id: op.ID, state: agentFailed, code: CodeNoAnswer, message: "others have made workers meanwhile"}
	}
	seen.late, seen.next = s.board.joins(key, &seen.fleet, &obj.Status, joinWithin(&obj.Spec), s.Clock.Now())
	seen.fleet.lose(seen.late, obj.Status.Operation, mode(obj), seen.plain)
	return seen, nil
}

func provisionTime(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	if spec.ScaleUp == nil || spec.ScaleUp.MaxNodeProvisionTime == nil {
		return defaultProvisionTime
	}
	return spec.ScaleUp.MaxNodeProvisionTime.Duration
}

// joinWithin is how long a machine may take from being asked for to joining, before it is said that
// it could not be had. Cluster Autoscaler waits a little longer.
func joinWithin(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	return provisionTime(spec) * 9 / 10
}

// question is how the agent is reached, and what it is asked.
func (s *Steps) question(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *sight, here *engine.Client) (question, error) {
	endpoint := obj.Spec.Agent
	var data map[string][]byte
	if ref := endpoint.SecretRef; ref != nil {
		secret, found, err := s.secret(ctx, here, client.ObjectKeyFromObject(obj), types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name})
		if err != nil {
			return question{}, reconcile.TryAgain(AgentAccessReason, "reading Secret %s of the agent: %w", ref.Name, err)
		}
		if !found {
			return question{}, reconcile.TryAgain(AgentAccessReason, "Secret %s, which should have what the agent's TLS needs, does not exist", ref.Name)
		}
		data = secret.Data
	}
	id, err := json.Marshal([]any{endpoint, data})
	if err != nil {
		return question{}, err
	}
	q := question{id: sha256.Sum256(id), cluster: clusterName(seen.cluster), within: provisionTime(&obj.Spec)}
	q.open = func() (Conn, error) { return agentclient.Dial(endpoint, data) }
	return q, nil
}

// unheard is why an agent has said nothing yet.
func unheard(obj *clusterv1.KsctlAutoScaler, err error) error {
	var (
		secret  *agentclient.SecretError
		address *agentclient.AddressError
	)
	switch {
	case err == nil:
		return reconcile.Wait(AskingReason, "the agent at %s is being asked for the machines", obj.Spec.Agent.Address)
	case errors.As(err, &secret) && obj.Spec.Agent.SecretRef != nil:
		return reconcile.Fail(AgentAccessReason, "spec.agent.secretRef: Secret %s: %w", obj.Spec.Agent.SecretRef.Name, err)
	case errors.As(err, &address):
		return reconcile.Fail(AgentAccessReason, "spec.agent.address: %w", err)
	}
	return reconcile.TryAgain(AgentUnreachableReason, "%s: %w; nothing is scaled until it answers", obj.Spec.Agent.Address, err)
}
