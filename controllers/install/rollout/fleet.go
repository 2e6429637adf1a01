package rollout

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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/content"
)

// FleetSteps reconciles an install for many clusters: it manages a member install for each cluster,
// and reports their states. It sends no requests to other clusters.
type FleetSteps struct {
	// Client reads from the cache, and writes member installs.
	Client client.Client
	// Single provides the steps that both kinds of installs share.
	Single     *install.Steps
	FieldOwner string
}

// currentReasons maps reasons that earlier versions stored to those that replaced them.
var currentReasons = map[string]string{"WaitsForTurn": appsv1.AwaitingRolloutReason}

// currentReason returns the reason of a condition as this version calls it.
func currentReason(stored string) string { return cmp.Or(currentReasons[stored], stored) }

// maxClusters is the maximum number of clusters of an install. Each has an entry in its status.
const maxClusters = 1000

// Reconcile performs the next step of the rollout.
func (f *FleetSteps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	in := req.Object
	if in.Spec.ClusterSelector == nil {
		return reconcile.Stalled{Reason: appsv1.ClusterChangedReason, Err: fmt.Errorf(
			"spec.clusterSelector was removed, but the stack is installed on %d clusters: nothing is changed; "+
				"restore spec.clusterSelector, or delete the KsctlInstall to remove the stack from these clusters",
			len(in.Status.Clusters))}
	}
	selected, err := f.Single.Content.Artifact(ctx, in.Spec.SourceRef, in.Namespace, in.Spec.Stack,
		in.Spec.StackVersion)
	if err != nil {
		if removeErr := f.removeOrphans(ctx, in); removeErr != nil {
			return reconcile.Retry{Err: removeErr}
		}
		return content.SourceOutcome(err)
	}
	in.Status.LastAttemptedRevision = selected.Revision
	members, err := f.members(ctx, in, selected.Digest)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: selected.Revision}
	}
	sel := in.Spec.ClusterSelector
	r := planRollout(members, selected.Revision, rolloutOptions{maxConcurrent: int(ptr.Deref(sel.MaxConcurrent,
		appsv1.DefaultMaxConcurrent)),
		stopOnFailure: sel.OnFailure != appsv1.FailureContinue, approved: in.Annotations[appsv1.ApproveAnnotation],
		now: f.Single.Clock.Now()})
	in.Status.Clusters = r.clusters
	if err := f.applyRollout(ctx, in, members, &r); err != nil {
		return reconcile.Retry{Err: err, Revision: selected.Revision}
	}
	return f.outcome(in, &r, selected.Revision)
}

// members returns the clusters that the selector matches, and those with a member install. They are
// sorted by name.
func (f *FleetSteps) members(ctx context.Context, in *appsv1.KsctlInstall, digest string) ([]memberInstall, error) {
	selector, err := metav1.LabelSelectorAsSelector(&in.Spec.ClusterSelector.LabelSelector)
	if err != nil {
		return nil, err
	}
	var clusters clusterv1.KsctlClusterList
	if err := f.Client.List(ctx, &clusters, client.InNamespace(in.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	installs, err := f.listMembers(ctx, in)
	if err != nil {
		return nil, err
	}
	previous := make(map[string]*appsv1.InstalledCluster, len(in.Status.Clusters))
	for i := range in.Status.Clusters {
		previous[in.Status.Clusters[i].Name] = &in.Status.Clusters[i]
	}
	byCluster := map[string]*memberInstall{}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		byCluster[c.Name] = &memberInstall{cluster: c.Name, clusterGone: c.DeletionTimestamp != nil,
			selected: c.DeletionTimestamp == nil && selector.Matches(labels.Set(c.Labels))}
	}
	for i := range installs {
		x := &installs[i]
		name := memberCluster(in, x)
		s := byCluster[name]
		if s == nil {
			s = &memberInstall{cluster: name, clusterGone: true}
			byCluster[name] = s
		}
		s.install = x
	}
	var out []memberInstall
	for _, s := range byCluster {
		if !s.selected && s.install == nil {
			continue
		}
		if err := f.checkName(ctx, in, s); err != nil {
			return nil, err
		}
		s.desired, s.previous = desiredMember(in, s.cluster, digest), previous[s.cluster]
		s.upToDate = s.install != nil && memberUpToDate(s.install, s.desired)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b memberInstall) int { return cmp.Compare(a.cluster, b.cluster) })
	if len(out) > maxClusters {
		return nil, fmt.Errorf("spec.clusterSelector selects %d clusters, but a KsctlInstall supports at most %d: "+
			"create several KsctlInstalls for parts of the clusters", len(out), maxClusters)
	}
	return out, nil
}

// checkName checks whether another object has the name of a member install that does not exist yet.
func (f *FleetSteps) checkName(ctx context.Context, in *appsv1.KsctlInstall, s *memberInstall) error {
	if s.install != nil {
		return nil
	}
	var x appsv1.KsctlInstall
	name := types.NamespacedName{Namespace: in.Namespace, Name: memberName(in.Name, s.cluster)}
	err := f.Client.Get(ctx, name, &x, client.UnsafeDisableDeepCopy)
	s.nameTaken = err == nil && !metav1.IsControlledBy(&x, in)
	return client.IgnoreNotFound(err)
}

// removeOrphans deletes the member installs of deleted clusters. It works without the source.
func (f *FleetSteps) removeOrphans(ctx context.Context, in *appsv1.KsctlInstall) error {
	members, err := f.members(ctx, in, "")
	if err != nil {
		return err
	}
	for i := range members {
		if s := &members[i]; s.clusterGone && s.install != nil && s.install.DeletionTimestamp == nil {
			if err := f.deleteMember(ctx, in, s.install); err != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("deleting the KsctlInstall for cluster %s: %w", s.cluster, err)
			}
		}
	}
	return nil
}

// listMembers returns the member installs of an install.
func (f *FleetSteps) listMembers(ctx context.Context, in *appsv1.KsctlInstall) ([]appsv1.KsctlInstall, error) {
	var all appsv1.KsctlInstallList
	err := f.Client.List(ctx, &all, client.InNamespace(in.Namespace),
		client.MatchingFields{install.FleetIndex: in.Name}, client.UnsafeDisableDeepCopy)
	return slices.DeleteFunc(slices.Clone(all.Items), func(x appsv1.KsctlInstall) bool {
		return !metav1.IsControlledBy(&x, in)
	}), err
}

// applyRollout creates, updates and deletes member installs. An error for one member does not
// affect the others.
func (f *FleetSteps) applyRollout(ctx context.Context, in *appsv1.KsctlInstall, members []memberInstall,
	r *rollout) error {
	var errs []error
	for i := range members {
		s := &members[i]
		turn, changes := r.updates[s.cluster]
		if changes {
			s.desired.Annotations[appsv1.TurnAnnotation] = turn.String()
		}
		var err error
		switch {
		case slices.Contains(r.removals, s.cluster):
			err = f.deleteMember(ctx, in, s.install)
		case changes && s.install == nil:
			err = f.Client.Create(ctx, s.desired, client.FieldOwner(f.FieldOwner))
		case changes:
			err = f.Client.Update(ctx, withDesired(s.install, s.desired), client.FieldOwner(f.FieldOwner))
		case s.install != nil && s.install.DeletionTimestamp == nil:
			err = f.forwardRequests(ctx, in, s.install)
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue // the cache is stale: its next event enqueues the install
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reconciling the KsctlInstall for cluster %s: %w", s.cluster, err))
			if changes {
				r.revertStart(s)
			}
		}
	}
	return errors.Join(errs...)
}

// forwardRequests copies the annotations that request something to a member install.
func (f *FleetSteps) forwardRequests(ctx context.Context, in, x *appsv1.KsctlInstall) (err error) {
	for _, name := range requestAnnotations {
		value := in.Annotations[name]
		if value == "" || x.Annotations[name] == value {
			continue
		}
		if x, err = f.annotate(ctx, x, name, value); err != nil {
			return err
		}
	}
	return nil
}

// annotate sets an annotation of a member install. It returns the changed copy.
func (f *FleetSteps) annotate(ctx context.Context, x *appsv1.KsctlInstall,
	name, value string) (*appsv1.KsctlInstall, error) {
	updated := x.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, name, value)
	return updated, f.Client.Patch(ctx, updated, client.MergeFrom(x), client.FieldOwner(f.FieldOwner))
}

// deleteMember deletes a member install. It first updates the deletion settings of the member,
// because the rollout of a change of these settings may not have reached the member.
func (f *FleetSteps) deleteMember(ctx context.Context, in, x *appsv1.KsctlInstall) error {
	x = x.DeepCopy()
	if spec := &x.Spec; spec.DeletionPolicy != in.Spec.DeletionPolicy ||
		spec.ServiceAccountName != in.Spec.ServiceAccountName ||
		!apiequality.Semantic.DeepEqual(spec.Guard, in.Spec.Guard) {
		spec.DeletionPolicy, spec.ServiceAccountName, spec.Guard = in.Spec.DeletionPolicy, in.Spec.ServiceAccountName,
			in.Spec.Guard.DeepCopy()
		if err := f.Client.Update(ctx, x, client.FieldOwner(f.FieldOwner)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(f.Client.Delete(ctx, x,
		client.Preconditions{UID: &x.UID, ResourceVersion: &x.ResourceVersion}))
}

// outcome summarizes the states of the clusters.
func (f *FleetSteps) outcome(in *appsv1.KsctlInstall, r *rollout, revision string) reconcile.Outcome {
	summary := r.summary()
	switch {
	case r.approvalDigest != "":
		return reconcile.Stalled{Reason: appsv1.DeletionsHeldReason, Revision: revision, Err: fmt.Errorf(
			"spec.clusterSelector excludes more than half of the clusters with the stack: nothing is removed; to "+
				"approve the removal, annotate the KsctlInstall with %s: %s (%s)",
			appsv1.ApproveAnnotation, r.approvalDigest, summary)}
	case len(r.clusters) == 0:
		return reconcile.Waiting{Reason: appsv1.NoClustersReason, Revision: revision, For: r.waits(in),
			On: fmt.Sprintf("spec.clusterSelector selects no KsctlCluster in namespace %s", in.Namespace)}
	case r.counts[appsv1.ClusterFailed] > 0:
		return reconcile.Waiting{TimedOut: true, Reason: appsv1.ClustersFailedReason,
			On: summary + r.firstMessage(appsv1.ClusterFailed), For: r.waits(in), Revision: revision}
	case r.counts[appsv1.ClusterUnreachable] > 0 && r.counts[appsv1.ClusterUpdating]+
		r.counts[appsv1.ClusterWaiting] == 0:
		return reconcile.Waiting{TimedOut: true, Reason: appsv1.ClusterUnreachableReason,
			On: summary + r.firstMessage(appsv1.ClusterUnreachable), For: r.waits(in), Revision: revision}
	case r.counts[appsv1.ClusterReady] < len(r.clusters):
		// Members that wait for something else may cause no further events, so check again later.
		return reconcile.Waiting{On: summary, For: r.waits(in), Revision: revision,
			RequeueAt: f.Single.Clock.Now().Add(reconcile.RetryInterval(&in.Spec.Schedule))}
	}
	in.Status.LastAppliedRevision = revision
	return reconcile.Done{Message: fmt.Sprintf("Applied revision %s: %s", revision, summary), Revision: revision}
}

// Finalize deletes the member installs, each of which removes its objects.
func (f *FleetSteps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	in := req.Object
	abandoned := reconcile.Abandoned(in)
	if !abandoned {
		if out := f.Single.AwaitDependents(ctx, in); out != nil {
			return out
		}
	}
	installs, err := f.listMembers(ctx, in)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	var r rollout
	var errs []error
	for i := range installs {
		x := &installs[i]
		if abandoned {
			errs = append(errs, f.abandonMember(ctx, x))
		}
		if x.DeletionTimestamp == nil {
			errs = append(errs, f.deleteMember(ctx, in, x))
		}
		r.clusters = append(r.clusters,
			clusterStatus(memberInstall{cluster: memberCluster(in, x), install: x}, appsv1.ClusterRemoving))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) { // a conflict means that the cache is stale
			return reconcile.Retry{Err: err}
		}
	}
	if in.Status.Clusters = r.clusters; len(r.clusters) > 0 {
		return reconcile.Waiting{On: fmt.Sprintf("the stack is being removed from %d clusters: %s%s", len(r.clusters),
			r.clustersIn(appsv1.ClusterRemoving), r.firstMessage(appsv1.ClusterRemoving)), For: r.waits(in),
			Reason: appsv1.RemovingReason}
	}
	return reconcile.Done{Message: "the stack was removed from all clusters"}
}

// abandonMember sets the abandon annotation of a member install, so that its objects stay when it
// is deleted.
func (f *FleetSteps) abandonMember(ctx context.Context, x *appsv1.KsctlInstall) error {
	if reconcile.Abandoned(x) {
		return nil
	}
	updated, err := f.annotate(ctx, x, appsv1.AbandonAnnotation, string(x.UID))
	if err == nil {
		*x = *updated
	}
	return client.IgnoreNotFound(err)
}
