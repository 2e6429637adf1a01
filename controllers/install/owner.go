package install

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/stacks"
)

// owner is an install as the engine sees it, and what is kept of it between
// reconciles. One reconcile of an install runs at a time.
type owner struct {
	key    engine.OwnerKey
	inv    *engine.Inventory
	chunks *engine.ChunkStore
	mu     sync.Mutex // guards manifests: objects are sent side by side
	// target is the cluster that it is for, as found last; nil: it was not yet. uid is that
	// cluster's, if it is known; stays is nil when the KsctlCluster is not being deleted.
	target *engine.Target
	uid    string
	stays  func(context.Context) error
	// req is the reconcile under way; nil between two.
	req *reconcile.Request[*appsv1.KsctlInstall]

	// render finds the manifests of the last render again; manifests are those of
	// the reconcile under way, by object.
	render    func(ctx context.Context) (stacks.Result, error)
	manifests map[string]json.RawMessage

	// awaits is the revision that it is not its turn yet to take in; empty: none.
	awaits string

	// rendered is the last render without its manifests; values are what its ConfigMaps and Secrets held.
	rendered wanted
	// stopped is a render that met its bounds.
	stopped setback
	values  map[valuesKey]cachedValues

	// verdicts on what the install depends on; blocked are those that it waits for.
	verdicts map[question]verdict
	blocked  []string

	// removals are what KsctlRemoves ask to go, missing since when those that are
	// followed are gone; holdAll keeps everything for those that depend on it.
	removals removals
	missing  map[string]time.Time
	holdAll  bool

	// recorded is true where the status that was read says that something is published;
	// published is what of it this process knows.
	recorded  bool
	published publish.Kept

	// heirs are who may want what the install wants no more; nil: nobody.
	heirs *heirs

	// waitingFor and since are the wave that is waited for.
	waitingFor string
	since      time.Time
	// acted is true from what was done to objects until the status says that it is.
	acted bool
	// corrected is told of drift that was put right; nil: nobody is.
	corrected func(install types.NamespacedName, objects int)
	// unsyncedSince is when the index was first seen not to know everything.
	unsyncedSince time.Time
}

var _ engine.Owner = (*owner)(nil)

// Key implements engine.Owner.
func (o *owner) Key() engine.OwnerKey { return o.key }

// Inventory implements engine.Owner.
func (o *owner) Inventory() *engine.Inventory { return o.inv }

// Policies implements engine.Owner.
func (o *owner) Policies() engine.Policies {
	spec := &o.req.Object.Spec
	p := engine.DefaultPolicies
	p.Force = spec.Force
	if spec.Adopt != "" {
		p.Adopt = spec.Adopt
	}
	if spec.Prune != nil {
		p.Prune = *spec.Prune
	}
	if o.heirs != nil {
		p.Heir = o.heirs.heir
	}
	p.Since = o.req.Object.CreationTimestamp.Time
	p.Asked = o.removals.asked(spec.Guard, o.holdAll)
	p.Orphan = spec.DeletionPolicy == appsv1.DeletionOrphan
	if g := spec.Guard; g != nil {
		if g.ProtectKinds != nil {
			p.Protect = g.ProtectKinds
		}
		if g.MaxDeletes != nil {
			p.MaxDeletes = int(*g.MaxDeletes)
		}
		if g.MaxDeletePercent != nil {
			p.MaxDeletePercent = int(*g.MaxDeletePercent)
		}
	}
	p.Approved = o.req.Object.Annotations[appsv1.ApproveAnnotation]
	if spec.Drift != nil {
		p.Ignore = spec.Drift.Ignore
		if spec.Drift.Mode != "" {
			p.Drift = spec.Drift.Mode
		}
	}
	return p
}

// Manifest implements engine.Owner.
func (o *owner) Manifest(ctx context.Context, it *engine.Item) (json.RawMessage, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.manifests == nil {
		res, err := o.render(ctx)
		if err != nil {
			return nil, err
		}
		o.remember(&res)
	}
	m, ok := o.manifests[manifestKey(it.Component, &it.Object)]
	if !ok {
		return nil, fmt.Errorf("%s is not in the render that it was planned from", it.Ref)
	}
	return m, nil
}

func (o *owner) remember(res *stacks.Result) {
	o.manifests = map[string]json.RawMessage{}
	for i := range res.Components {
		c := &res.Components[i]
		for j := range c.Objects {
			o.manifests[manifestKey(c.Name, &c.Objects[j])] = c.Objects[j].Manifest
		}
	}
}

// rest lets go of what only a reconcile needs.
func (o *owner) rest() { o.req, o.manifests = nil, nil }

// manifestKey tells the objects of a render apart. The namespace may be taken
// off an item once its kind's scope is known.
func manifestKey(component string, obj *stacks.Object) string {
	return component + "/" + obj.Group + "/" + obj.Kind + "/" + obj.Name + "/" + obj.Hash
}

// Persist implements engine.Owner.
func (o *owner) Persist(ctx context.Context) error {
	first := o.req.Object.Status.Cluster == ""
	if err := o.flush(ctx); err != nil {
		return err
	}
	if err := o.req.Persist(ctx, "applying revision "+o.req.Object.Status.LastAttemptedRevision); err != nil {
		return err
	}
	if first && o.stays != nil {
		return o.stays(ctx)
	}
	return nil
}

// flush brings the inventory into the status, and what does not fit there into chunks.
func (o *owner) flush(ctx context.Context) error {
	status, err := o.chunks.Record(ctx, o.key, o.inv)
	if err != nil {
		return err
	}
	st := &o.req.Object.Status
	st.Inventory, st.Cluster = status, target.Status(o.key.Cluster, status)
	st.ClusterUID = target.StatusUID(st.ClusterUID, o.uid, status)
	return nil
}

// maxNamed is how many objects an event names before it counts.
const maxNamed = 5

// report tells what a pass did beside applying what was asked: one event for
// each sort of it.
func (o *owner) report(rep *engine.Report) {
	if rep == nil {
		return
	}
	o.acted = o.acted || len(rep.Changes) > 0
	drifted := func(c engine.Change) bool { return c.Reason == engine.Drifted || c.Reason == engine.Missing }
	if n := count(rep.Changes, drifted); n > 0 && o.corrected != nil {
		o.corrected(client.ObjectKeyFromObject(o.req.Object), n)
	}
	sorts := []struct {
		reason, kind string
		is           func(engine.Change) bool
	}{
		{"DriftCorrected", corev1.EventTypeNormal, drifted},
		{"Adopted", corev1.EventTypeNormal, func(c engine.Change) bool { return c.Reason == engine.NewObject && c.Note != "" }},
		{"Recreated", corev1.EventTypeNormal, func(c engine.Change) bool { return c.Reason == engine.Changed && c.Verb == engine.Delete }},
		{"PreRemove", corev1.EventTypeNormal, func(c engine.Change) bool { return c.Reason == engine.PreRemove && c.Verb != engine.Skip }},
		{"PreRemoveSkipped", corev1.EventTypeWarning, func(c engine.Change) bool { return c.Reason == engine.PreRemove && c.Verb == engine.Skip }},
		{"HandedOver", corev1.EventTypeNormal, func(c engine.Change) bool { return c.Verb == engine.HandOver }},
		{"Left", corev1.EventTypeWarning, func(c engine.Change) bool { return c.Verb == engine.Drop || c.Verb == engine.Release }},
	}
	for _, s := range sorts {
		var named []string
		for _, c := range rep.Changes {
			if s.is(c) {
				named = append(named, describe(c))
			}
		}
		if len(named) > 0 {
			o.req.Event(s.kind, s.reason, list(named))
		}
	}
}

func count(changes []engine.Change, is func(engine.Change) bool) (n int) {
	for _, c := range changes {
		if is(c) {
			n++
		}
	}
	return n
}

func describe(c engine.Change) string {
	if c.Note == "" {
		return c.Ref.String()
	}
	return c.Ref.String() + " (" + c.Note + ")"
}

// list joins names, and counts those beyond maxNamed.
func list(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
}
