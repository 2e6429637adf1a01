package bysource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/controllers/remove/match"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
)

// freeze renders the stack, looks for what is there of it, and puts that into the
// status; nil when it did.
func (s *Steps) freeze(ctx context.Context, o *owner, c clients, asked string) reconcile.Outcome {
	rm := o.req.Object
	// What is frozen stays, so it is not to be of what a cache has yet.
	from, err := s.Content.Newest(ctx, s.Direct, *rm.Spec.SourceRef, rm.Namespace, rm.Spec.Stack, rm.Spec.StackVersion)
	if err != nil {
		out := content.SourceOutcome(err)
		if w, ok := out.(reconcile.Waiting); ok { // nothing is watched for it
			w.Until = s.Clock.Now().Add(reconcile.RetryInterval(&rm.Spec.Schedule))
			return w
		}
		return out
	}
	rm.Status.LastAttemptedRevision = from.Revision
	req, err := s.request(ctx, o)
	if err != nil {
		return content.RenderOutcome(err, from.Revision)
	}
	req.Digest = from.Digest
	keys, err := s.keys(ctx, c.here, rm)
	if err != nil {
		return content.RenderOutcome(err, from.Revision)
	}
	res, err := s.Content.Render(ctx, from, req, keys, access(ctx, c.here, rm), nil)
	if err != nil {
		return content.RenderOutcome(err, from.Revision)
	}
	if err := match.Components(&rm.Spec, "the stack", names(res.Components)); err != nil {
		return reconcile.Stalled{Err: err, Reason: match.NoSuchComponentReason, Revision: from.Revision}
	}
	l := &looker{client: c.there, discovery: o.target.Discovery, spec: &rm.Spec, self: o.Key().String(), home: rm.Namespace}
	f, err := l.look(ctx, engine.Prepare(ctx, res.Components, engine.Policies{}, o.target.Discovery), res.Components)
	if err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	o.replace(f.set)
	if err := s.foresee(ctx, o, c.there, f); err != nil {
		return reconcile.Retry{Err: err, Revision: from.Revision}
	}
	s.show(rm, f, asked)
	return nil
}

// foresee completes what was found with what others have in it, and who needs it.
func (s *Steps) foresee(ctx context.Context, o *owner, c *engine.Client, f *found) error {
	stay, hold, err := s.Engine.Foresee(ctx, o.target, c, o)
	if err != nil {
		return err
	}
	for _, r := range stay {
		f.spared = append(f.spared, appsv1.RemovalObject{ID: r.Entry.ID, Reason: kept, Message: r.Message})
	}
	for _, r := range hold {
		f.blockers = append(f.blockers, appsv1.RemovalObject{ID: r.Entry.ID, Reason: waits, Message: r.Message})
	}
	if o.key.Cluster != engine.LocalCluster {
		return nil // what installs depend on is in this cluster
	}
	var installs appsv1.KsctlInstallList
	if err := s.Client.List(ctx, &installs, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	f.dependents = dependents(f.set, installs.Items)
	return nil
}

// request is what the stack is rendered from.
func (s *Steps) request(ctx context.Context, o *owner) (stacks.Request, error) {
	rm := o.req.Object
	spec := &rm.Spec
	// The choices are those that an install would have.
	choices, err := stacks.ChoicesFromInstall(&appsv1.KsctlInstall{Spec: appsv1.KsctlInstallSpec{Stack: spec.Stack, StackVersion: spec.StackVersion,
		Parameters: spec.Parameters, Components: spec.Choices, TargetNamespace: spec.TargetNamespace}}, nil)
	if err != nil {
		return stacks.Request{}, err
	}
	caps, err := o.target.Capabilities(ctx)
	if err != nil {
		return stacks.Request{}, err
	}
	return stacks.Request{Path: spec.Path, Stack: spec.Stack, Install: stacks.Identity{Namespace: rm.Namespace, Name: rm.Name},
		Choices: choices, Capabilities: caps, SecretKey: s.SecretKey}, nil
}

func names(rendered []stacks.RenderedComponent) []string {
	out := make([]string, 0, len(rendered))
	for i := range rendered {
		out = append(out, rendered[i].Name)
	}
	return out
}

// Bounds of what a status names; counts are in full.
const (
	maxShown = 100
	maxSteps = 50
	maxOf    = 20
	// maxMessage is in bytes.
	maxMessage = 512
)

// show writes the rehearsal.
func (s *Steps) show(rm *appsv1.KsctlRemove, f *found, asked string) {
	st := &rm.Status
	r := &appsv1.Removal{Generation: rm.Generation, Digest: asked + "-" + engine.Digest(f.set), MadeAt: metav1.NewTime(s.Clock.Now().Truncate(time.Second)),
		Count: int32(len(f.set)), Kept: f.spared, Blockers: shown(f.blockers), Dependents: f.dependents}
	for _, step := range engine.RemovalOrder(f.set) {
		if len(r.Order) == maxSteps {
			break
		}
		out := appsv1.RemovalStep{Wave: step[0].Wave, Count: int32(len(step))}
		for i := range step[:min(maxOf, len(step))] {
			out.Objects = append(out.Objects, step[i].ID)
		}
		r.Order = append(r.Order, out)
	}
	for _, x := range f.left {
		if x.Reason == kept {
			r.Kept = append(r.Kept, x)
		}
	}
	r.Kept = shown(r.Kept)
	st.Removal, st.Remaining, st.Removed = r, shown(f.left), nil
	st.Left = ptr.To(int32(len(f.set) + len(f.left)))
}

// shown is the first of objects, in their order.
func shown(all []appsv1.RemovalObject) []appsv1.RemovalObject {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b appsv1.RemovalObject) int { return cmp.Compare(a.ID, b.ID) })
	out = out[:min(maxShown, len(out))]
	for i := range out {
		if m := out[i].Message; len(m) > maxMessage {
			out[i].Message = strings.ToValidUTF8(m[:maxMessage], "") + "…"
		}
	}
	return out
}

// fingerprint of what a spec asks for, less its approval and when to look.
func fingerprint(spec *appsv1.KsctlRemoveSpec) (string, error) {
	asked := *spec
	asked.Schedule, asked.ApprovedDigest = appsv1.Schedule{}, ""
	raw, err := json.Marshal(struct {
		appsv1.KsctlRemoveSpec
		// Nothing to keep is not the same as nothing said.
		Keep *[]appsv1.KeepRule
	}{asked, keepOf(spec)})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:4]), nil
}

func keepOf(spec *appsv1.KsctlRemoveSpec) *[]appsv1.KeepRule {
	if spec.Keep == nil {
		return nil
	}
	return &spec.Keep
}
