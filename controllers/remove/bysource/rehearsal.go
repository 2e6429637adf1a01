package bysource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/problem"
)

// rehearse renders the stack, finds its objects, and records them in the status; nil on success.
func (s *Steps) rehearse(ctx context.Context, o *owner, c clients, specHash string) reconcile.Outcome {
	rm := o.req.Object
	// The rehearsal is not updated later, so the source must not come from a stale cache.
	from, err := s.Content.UncachedArtifact(ctx, s.Direct, *rm.Spec.SourceRef, rm.Namespace, rm.Spec.Stack,
		rm.Spec.StackVersion)
	if err != nil {
		out := content.SourceOutcome(err)
		if w, ok := out.(reconcile.Waiting); ok { // no event of a source enqueues a KsctlRemove
			w.RequeueAt = s.Clock.Now().Add(reconcile.RetryInterval(&rm.Spec.Schedule))
			return w
		}
		return out
	}
	rm.Status.LastAttemptedRevision = from.Revision
	req, err := s.renderRequest(ctx, o)
	if err != nil {
		return content.RenderOutcome(err, from.Revision)
	}
	req.Digest = from.Digest
	keys, err := s.decryptionKeys(ctx, c.local, rm)
	if err != nil {
		return content.RenderOutcome(err, from.Revision)
	}
	cluster, err := s.clusterVariable(ctx, rm)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	var facts [][]string
	res, err := stacks.RenderWithFacts(ctx, req, cluster, &facts,
		func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
			return s.Content.Render(ctx, from, req, keys, chartAccess(ctx, c.local, rm), nil)
		})
	if err != nil {
		return content.RenderOutcome(explainParameters(err), from.Revision)
	}
	if err := match.CheckComponents(&rm.Spec, "the stack", componentNames(res.Components)); err != nil {
		return reconcile.OutcomeOf(err, from.Revision)
	}
	l := &finder{client: c.target, discovery: o.target.Discovery, spec: &rm.Spec, self: o.Key().String(),
		homeNamespace: rm.Namespace}
	f, err := l.find(ctx, engine.Prepare(ctx, res.Components, plan.Policies{}, o.target.Discovery), res.Components)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	o.setEntries(f.set)
	if err := s.addForecast(ctx, o, c.target, f); err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	s.reportRehearsal(rm, f, specHash)
	return nil
}

// addForecast adds the objects that others use, blockers and dependents to the found objects.
func (s *Steps) addForecast(ctx context.Context, o *owner, c *engine.Client, f *findings) error {
	keptRemarks, blockerRemarks, err := s.Engine.PreviewObstacles(ctx, s.pass(o, c))
	if err != nil {
		return err
	}
	for _, r := range keptRemarks {
		f.spared = append(f.spared, appsv1.RemovalObject{ID: r.Entry.ID, Reason: reasonKept, Message: r.Message})
	}
	for _, r := range blockerRemarks {
		f.blockers = append(f.blockers, appsv1.RemovalObject{ID: r.Entry.ID, Reason: reasonWaiting, Message: r.Message})
	}
	if o.key.Cluster != plan.LocalCluster {
		return nil // dependencies are on objects of the local cluster
	}
	var installs appsv1.KsctlInstallList
	if err := s.Client.List(ctx, &installs, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	f.dependents = dependentMessages(f.set, installs.Items)
	return nil
}

// renderRequest returns the input of the render.
func (s *Steps) renderRequest(ctx context.Context, o *owner) (stacks.Request, error) {
	rm := o.req.Object
	spec := &rm.Spec
	// Use the same choices as an install with these fields.
	choices, err := stacks.ChoicesFromInstall(&appsv1.KsctlInstall{Spec: appsv1.KsctlInstallSpec{Stack: spec.Stack,
		StackVersion: spec.StackVersion,
		Parameters:   spec.Parameters, Components: spec.Choices, TargetNamespace: spec.TargetNamespace}}, nil)
	if err != nil {
		return stacks.Request{}, err
	}
	caps, err := o.target.Capabilities(ctx)
	if err != nil {
		return stacks.Request{}, err
	}
	return stacks.Request{Path: spec.Path, Stack: spec.Stack,
		Install: stacks.Identity{Namespace: rm.Namespace, Name: rm.Name},
		Choices: choices, Capabilities: caps, SecretKey: s.SecretKey,
		Generate: generated.Options{Policy: generated.Placeholders}}, nil
}

// clusterVariable returns the variable cluster for the target of a KsctlRemove; nil without a
// KsctlCluster.
func (s *Steps) clusterVariable(ctx context.Context, rm *appsv1.KsctlRemove) (map[string]any, error) {
	ref := rm.Spec.ClusterRef
	if ref == nil {
		return nil, nil
	}
	var c clusterv1.KsctlCluster
	name := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, rm.Namespace), Name: ref.Name}
	if err := s.Client.Get(ctx, name, &c, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return stacks.ClusterVariable(&c)
}

// explainParameters adds to an error about parameters where those of an install belong that read
// them from ConfigMaps and Secrets.
func explainParameters(err error) error {
	isAboutParameters := func(e *problem.Error) bool { return e.Field == "spec.parameters" }
	if !slices.ContainsFunc(problem.Flatten(err), isAboutParameters) {
		return err
	}
	return fmt.Errorf("%w; a KsctlRemove reads no ConfigMaps and Secrets: set in spec.parameters what the install had "+
		"from parametersFrom", err)
}

func componentNames(rendered []stacks.RenderedComponent) []string {
	out := make([]string, 0, len(rendered))
	for _, c := range rendered {
		out = append(out, c.Name)
	}
	return out
}

// Bounds of the lists in the status; the counts include everything.
const (
	maxListed      = 100
	maxSteps       = 50
	maxStepObjects = 20
	// maxMessageBytes bounds a message.
	maxMessageBytes = 512
)

// reportRehearsal sets the rehearsal in the status.
func (s *Steps) reportRehearsal(rm *appsv1.KsctlRemove, f *findings, specHash string) {
	st := &rm.Status
	r := &appsv1.Removal{Generation: rm.Generation, Digest: specHash + "-" + plan.Digest(f.set),
		MadeAt: metav1.NewTime(s.Clock.Now().Truncate(time.Second)),
		Count:  int32(len(f.set)), Kept: f.spared, Blockers: firstObjects(f.blockers), Dependents: f.dependents}
	for _, step := range plan.RemovalOrder(f.set) {
		if len(r.Order) == maxSteps {
			break
		}
		out := appsv1.RemovalStep{Wave: step[0].Wave, Count: int32(len(step))}
		for _, e := range step[:min(maxStepObjects, len(step))] {
			out.Objects = append(out.Objects, e.ID)
		}
		r.Order = append(r.Order, out)
	}
	for _, x := range f.left {
		if x.Reason == reasonKept {
			r.Kept = append(r.Kept, x)
		}
	}
	r.Kept = firstObjects(r.Kept)
	st.Removal, st.Remaining, st.Removed = r, firstObjects(f.left), nil
	st.Left = ptr.To(int32(len(f.set) + len(f.left)))
}

// firstObjects returns the first objects by ID, with shortened messages.
func firstObjects(objects []appsv1.RemovalObject) []appsv1.RemovalObject {
	out := slices.Clone(objects)
	slices.SortStableFunc(out, func(a, b appsv1.RemovalObject) int { return cmp.Compare(a.ID, b.ID) })
	out = out[:min(maxListed, len(out))]
	for i := range out {
		out[i].Message = reconcile.Truncate(out[i].Message, maxMessageBytes)
	}
	return out
}

// fingerprint returns a hash of the spec without its approval and schedule.
func fingerprint(spec *appsv1.KsctlRemoveSpec) (string, error) {
	relevant := *spec
	relevant.Schedule, relevant.ApprovedDigest = appsv1.Schedule{}, ""
	raw, err := json.Marshal(struct {
		appsv1.KsctlRemoveSpec
		// Keep has no omitempty: an empty list differs from an unset one.
		Keep []appsv1.KeepRule
	}{relevant, spec.Keep})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:4]), nil
}

// dependentMessages returns a message for each install that depends on one of the objects.
func dependentMessages(entries []appsv1.InventoryEntry, installs []appsv1.KsctlInstall) []string {
	ids := map[string]bool{}
	for _, e := range entries {
		ids[e.ID] = true
	}
	var out []string
	for i := range installs {
		for _, r := range dependency.ObjectRefsIn(&installs[i], func(id string) bool { return ids[id] }) {
			out = append(out, fmt.Sprintf("KsctlInstall %s/%s depends on %s", installs[i].Namespace, installs[i].Name,
				r))
		}
	}
	slices.Sort(out)
	return out[:min(maxListed, len(out))]
}
