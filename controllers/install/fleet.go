package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
)

// Forms reconcile a KsctlInstall: one for a cluster, or one for many.
type Forms struct {
	One  *Steps
	Many *Fleets
}

var _ reconcile.Steps[*appsv1.KsctlInstall] = (*Forms)(nil)

// isFleet is true for an install for many clusters. One that has objects itself is none until
// they are gone; one that has installs for clusters is one until they are.
func isFleet(in *appsv1.KsctlInstall) bool {
	return in.Spec.ClusterSelector != nil && in.Status.Inventory == nil || len(in.Status.Clusters) > 0
}

// Reconcile implements reconcile.Steps.
func (f *Forms) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	switch in := req.Object; {
	case isFleet(in):
		return f.Many.Reconcile(ctx, req)
	case in.Spec.ClusterSelector != nil:
		return reconcile.Stalled{Reason: target.ClusterChangedReason, Err: fmt.Errorf(
			"what is installed is on %s, and the spec has a clusterSelector by now: nothing is changed. Take it out again; to move, have what is installed removed first",
			target.People(target.OfInstall(in)))}
	}
	return f.One.Reconcile(ctx, req)
}

// Finalize implements reconcile.Steps.
func (f *Forms) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	if isFleet(req.Object) {
		return f.Many.Finalize(ctx, req)
	}
	return f.One.Finalize(ctx, req)
}

// Forget implements reconcile.Steps.
func (f *Forms) Forget(key types.NamespacedName) { f.One.Forget(key) }

// Fleets reconcile an install for many clusters: they keep an install for each, and say how
// those stand. They touch no other cluster themselves.
type Fleets struct {
	// Client reads from the cache, and writes installs.
	Client  client.Client
	Content *content.Loader
	// One is for what both forms do.
	One        *Steps
	FieldOwner string
	Clock      clock.PassiveClock
}

// Reasons of an install for many clusters.
const (
	// NoClustersReason: spec.clusterSelector picks no KsctlCluster.
	NoClustersReason = "NoClusters"
	// ClustersFailedReason: the install for one or more clusters has failed.
	ClustersFailedReason = "ClustersFailed"
	// WaitsForTurnReason: it is not the cluster's turn yet to take in what the source has.
	WaitsForTurnReason = "WaitsForTurn"
)

// maxClusters of one install: each has a line in its status.
const maxClusters = 1000

// Reconcile takes the next step of the roll-out.
func (f *Fleets) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	in := req.Object
	if in.Spec.ClusterSelector == nil {
		return reconcile.Stalled{Reason: target.ClusterChangedReason, Err: fmt.Errorf(
			"there are installs for %d clusters, and the spec has no clusterSelector any more: nothing is changed. Put it back; to have them removed delete this install", len(in.Status.Clusters))}
	}
	from, err := f.Content.Artifact(ctx, in.Spec.SourceRef, in.Namespace, in.Spec.Stack, in.Spec.StackVersion)
	if err != nil {
		if cleared := f.clear(ctx, in); cleared != nil {
			return reconcile.Retry{Err: cleared}
		}
		return content.SourceOutcome(err)
	}
	in.Status.LastAttemptedRevision = from.Revision
	sites, err := f.sites(ctx, in, from.Digest)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	sel := in.Spec.ClusterSelector
	r := planRollout(sites, from.Revision, rolloutOptions{maxConcurrent: int(ptr.Deref(sel.MaxConcurrent, appsv1.DefaultMaxConcurrent)),
		stop: sel.OnFailure != appsv1.FailureContinue, approved: in.Annotations[appsv1.ApproveAnnotation], now: f.Clock.Now()})
	in.Status.Clusters = r.lines
	if err := f.act(ctx, in, sites, &r); err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	return f.outcome(in, &r, from.Revision)
}

// sites are the clusters that are picked, and those that have an install.
func (f *Fleets) sites(ctx context.Context, in *appsv1.KsctlInstall, digest string) ([]site, error) {
	selector, err := metav1.LabelSelectorAsSelector(&in.Spec.ClusterSelector.LabelSelector)
	if err != nil {
		return nil, err
	}
	var clusters clusterv1.KsctlClusterList
	if err := f.Client.List(ctx, &clusters, client.InNamespace(in.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	installs, err := f.made(ctx, in)
	if err != nil {
		return nil, err
	}
	before := make(map[string]*appsv1.InstalledCluster, len(in.Status.Clusters))
	for i := range in.Status.Clusters {
		before[in.Status.Clusters[i].Name] = &in.Status.Clusters[i]
	}
	byCluster := map[string]*site{}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		byCluster[c.Name] = &site{cluster: c.Name, lost: c.DeletionTimestamp != nil, picked: c.DeletionTimestamp == nil && selector.Matches(labels.Set(c.Labels))}
	}
	for i := range installs {
		x := &installs[i]
		name := clusterOfSite(in, x)
		s := byCluster[name]
		if s == nil {
			s = &site{cluster: name, lost: true}
			byCluster[name] = s
		}
		s.install = x
	}
	var out []site
	for _, s := range byCluster {
		if !s.picked && s.install == nil {
			continue
		}
		if err := f.look(ctx, in, s); err != nil {
			return nil, err
		}
		s.want, s.before = siteInstall(in, s.cluster, digest), before[s.cluster]
		s.current = s.install != nil && currentSite(s.install, s.want)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b site) int { return cmp.Compare(a.cluster, b.cluster) })
	if len(out) > maxClusters {
		return nil, fmt.Errorf("spec.clusterSelector picks %d clusters, and an install takes %d: make several installs, each with some of them", len(out), maxClusters)
	}
	return out, nil
}

// look finds out whether the name of an install that is needed is somebody else's.
func (f *Fleets) look(ctx context.Context, in *appsv1.KsctlInstall, s *site) error {
	if s.install != nil {
		return nil
	}
	var x appsv1.KsctlInstall
	name := types.NamespacedName{Namespace: in.Namespace, Name: siteName(in.Name, s.cluster)}
	err := f.Client.Get(ctx, name, &x, client.UnsafeDisableDeepCopy)
	s.taken = err == nil && !isSite(&x, in)
	return client.IgnoreNotFound(err)
}

// clear removes the installs for clusters that go: that needs no source.
func (f *Fleets) clear(ctx context.Context, in *appsv1.KsctlInstall) error {
	sites, err := f.sites(ctx, in, "")
	if err != nil {
		return err
	}
	for i := range sites {
		if s := &sites[i]; s.lost && s.install != nil && s.install.DeletionTimestamp == nil {
			if err := f.remove(ctx, in, s.install); err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("the install for cluster %s: %w", s.cluster, err)
			}
		}
	}
	return nil
}

// made are the installs that an install made for clusters.
func (f *Fleets) made(ctx context.Context, in *appsv1.KsctlInstall) ([]appsv1.KsctlInstall, error) {
	var all appsv1.KsctlInstallList
	err := f.Client.List(ctx, &all, client.InNamespace(in.Namespace), client.MatchingFields{ofFleet: in.Name}, client.UnsafeDisableDeepCopy)
	return slices.DeleteFunc(slices.Clone(all.Items), func(x appsv1.KsctlInstall) bool { return !isSite(&x, in) }), err
}

// act makes, changes and removes installs. What it does to one does not depend on others.
func (f *Fleets) act(ctx context.Context, in *appsv1.KsctlInstall, sites []site, r *rollout) error {
	var errs []error
	for i := range sites {
		s := &sites[i]
		turn, changes := r.change[s.cluster]
		if changes {
			s.want.Annotations[appsv1.TurnAnnotation] = turn.String()
		}
		var err error
		switch {
		case slices.Contains(r.remove, s.cluster):
			err = f.remove(ctx, in, s.install)
		case changes && s.install == nil:
			err = f.Client.Create(ctx, s.want, client.FieldOwner(f.FieldOwner))
		case changes:
			err = f.Client.Update(ctx, adjusted(s.install, s.want), client.FieldOwner(f.FieldOwner))
		case s.install != nil && s.install.DeletionTimestamp == nil:
			err = f.handOn(ctx, in, s.install)
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // the cache is behind: what it has to tell comes as an event
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the install for cluster %s: %w", s.cluster, err))
			if changes {
				r.refuse(s)
			}
		}
	}
	return errors.Join(errs...)
}

// handOn has an install looked at when somebody asked for that of all.
func (f *Fleets) handOn(ctx context.Context, in, x *appsv1.KsctlInstall) error {
	at := in.Annotations[appsv1.RequestedAtAnnotation]
	if at == "" || x.Annotations[appsv1.RequestedAtAnnotation] == at {
		return nil
	}
	asked := x.DeepCopy()
	if asked.Annotations == nil {
		asked.Annotations = map[string]string{}
	}
	asked.Annotations[appsv1.RequestedAtAnnotation] = at
	return f.Client.Patch(ctx, asked, client.MergeFrom(x), client.FieldOwner(f.FieldOwner))
}

// remove deletes an install, which goes as the one that made it says by now: that may not have
// been its turn to be told.
func (f *Fleets) remove(ctx context.Context, in, x *appsv1.KsctlInstall) error {
	x = x.DeepCopy()
	if how := &x.Spec; how.DeletionPolicy != in.Spec.DeletionPolicy || how.ServiceAccountName != in.Spec.ServiceAccountName || !apiequality.Semantic.DeepEqual(how.Guard, in.Spec.Guard) {
		how.DeletionPolicy, how.ServiceAccountName, how.Guard = in.Spec.DeletionPolicy, in.Spec.ServiceAccountName, in.Spec.Guard.DeepCopy()
		if err := f.Client.Update(ctx, x, client.FieldOwner(f.FieldOwner)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(f.Client.Delete(ctx, x, client.Preconditions{UID: &x.UID, ResourceVersion: &x.ResourceVersion}))
}

// outcome says how the clusters stand.
func (f *Fleets) outcome(in *appsv1.KsctlInstall, r *rollout, revision string) reconcile.Outcome {
	words := r.words()
	switch {
	case r.held != "":
		return reconcile.Stalled{Reason: DeletionsHeldReason, Revision: revision, Err: fmt.Errorf(
			"spec.clusterSelector picks much less than before: the stack would leave more than half of its clusters. Nothing is removed; if that is meant, annotate the install with %s: %s. %s",
			appsv1.ApproveAnnotation, r.held, words)}
	case len(r.lines) == 0:
		return reconcile.Waiting{Reason: NoClustersReason, Revision: revision,
			On: fmt.Sprintf("spec.clusterSelector picks no KsctlCluster of namespace %s", in.Namespace)}
	case r.counts[appsv1.ClusterFailed] > 0:
		return reconcile.Waiting{Late: true, Reason: ClustersFailedReason, On: words + r.first(appsv1.ClusterFailed), Revision: revision}
	case r.counts[appsv1.ClusterUnreachable] > 0 && r.counts[appsv1.ClusterUpdating]+r.counts[appsv1.ClusterWaiting] == 0:
		return reconcile.Waiting{Late: true, Reason: target.ClusterUnreachableReason, On: words + r.first(appsv1.ClusterUnreachable), Revision: revision}
	case r.counts[appsv1.ClusterReady] < len(r.lines):
		// One that waits for something else says nothing any more.
		return reconcile.Waiting{On: words, Revision: revision, Until: f.Clock.Now().Add(reconcile.RetryInterval(&in.Spec.Schedule))}
	}
	in.Status.LastAppliedRevision = revision
	return reconcile.Done{Message: fmt.Sprintf("Applied revision %s: %s", revision, words), Revision: revision}
}
