package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// owner implements engine.Owner for a KsctlInstall. It also holds the state of the install that is
// kept in memory between reconciles. Only one reconcile of an install runs at a time.
type owner struct {
	key    plan.OwnerKey
	inv    *plan.Inventory
	chunks *engine.ChunkStore
	mu     sync.Mutex // guards manifests: objects are applied concurrently
	// target is the target cluster, as resolved last. It is nil until the first resolution. uid is
	// the UID of that cluster, if it is known. ensureCluster returns an error if the KsctlCluster
	// is being deleted.
	target        *engine.Target
	uid           string
	ensureCluster func(context.Context) error
	// req is the running reconcile. It is nil between reconciles.
	req *reconcile.Request[*appsv1.KsctlInstall]

	// rerender repeats the last render to get its manifests. manifests are those of the running
	// reconcile, by object.
	rerender  func(ctx context.Context) (stacks.Result, error)
	manifests map[string]json.RawMessage
	// passErrors are the errors of the last pass of the engine in the running reconcile.
	passErrors []error
	// passed is true after a pass of the engine in the running reconcile, and deniedCount the
	// number of changes of permissions before it.
	passed      bool
	deniedCount int

	// awaitedRevision is the revision that the rollout has not released to this install yet. It is
	// empty if there is none.
	awaitedRevision string

	// rendered is the last render without its manifests. values are the data of its ConfigMaps and
	// Secrets.
	rendered renderedStack
	// renderBackoff delays the retry of a render that was stopped because it exceeded a limit.
	renderBackoff renderBackoff
	// factPaths are the paths of the variable cluster that the last render read.
	factPaths [][]string
	values    map[valuesKey]cachedValues

	// generated are the values that the templates of charts generated, by component. It is nil
	// until they are read after a start.
	generated map[string]*generated.Values

	// comparedSecrets are the versions of the Secrets that were compared with generated values, by
	// component. compareAgain are the components that are compared again in the running reconcile.
	comparedSecrets map[string]map[stacks.Ref]string
	compareAgain    map[string]bool

	// releases are the records of the releases of chart components, by component.
	releases map[string]stacks.ReleaseRecord
	// former are the components that were installed before the status knows of it. It is nil
	// between reconciles.
	former map[string]bool
	// takenOver are those among the former components that have no inventory entry yet.
	takenOver map[string]bool

	// report is Policies.Report.
	report func(stacks.Ref) string

	// readiness are the last results for the objects that the install depends on. unmetDependencies
	// are the dependencies that are not ready.
	readiness         map[readinessCheck]readinessResult
	unmetDependencies []wait

	// removalRequests are the removals that KsctlRemoves request. missingSince has the times at
	// which the KsctlRemoves of recorded requests were first found missing. holdAll keeps all
	// objects because of dependents.
	removalRequests removalRequests
	missingSince    map[string]time.Time
	holdAll         bool

	// lineage are the install itself, and the installs that created it. released are those among
	// its objects, with the reason.
	lineage  map[types.NamespacedName]bool
	released map[string]string

	// provisional is true while the plan may change with what the unmet dependencies provide.
	provisional bool
	// terminatingNamespace is the namespace of the install while that is being deleted.
	terminatingNamespace string

	// account is the service account of the last reconcile that rendered.
	account *appsv1.AccountReference

	// publishRecorded is true if the status that was read has the Published condition. published is
	// the state of the publication in this process.
	publishRecorded bool
	published       publish.State

	// handover finds the new owners of objects that are no longer part of the install. If it is
	// nil, no other install takes over an object.
	handover *handover.Handover

	// waitingFor identifies the wave, or the removal, that the install waits for. waitingSince is
	// the start of the wait, or of the last progress.
	waitingFor   string
	waitingSince time.Time
	// changedObjects is true from a change of an object until the status has the revision.
	changedObjects bool
	// unsyncedSince is the time at which the index was first found out of sync.
	unsyncedSince time.Time
}

var _ engine.Owner = (*owner)(nil)

// Key implements engine.Owner.
func (o *owner) Key() plan.OwnerKey { return o.key }

// Inventory implements engine.Owner.
func (o *owner) Inventory() *plan.Inventory { return o.inv }

// Policies implements engine.Owner.
func (o *owner) Policies() plan.Policies {
	spec := &o.req.Object.Spec
	p := plan.DefaultPolicies
	p.Force = spec.Force
	p.Adopt, p.Prune = cmp.Or(spec.Adopt, p.Adopt), ptr.Deref(spec.Prune, p.Prune)
	if o.handover != nil {
		p.HandoverTo = o.handover.Decide
	}
	p.Released, p.TerminatingNamespace = o.released, o.terminatingNamespace
	if handoverTo := p.HandoverTo; o.provisional && handoverTo != nil {
		p.HandoverTo = keepUntilFinalPlan
	}
	p.Redact = redactGenerated(o.generated, o.readSecrets())
	p.AdoptStraysSince = o.req.Object.CreationTimestamp.Time
	p.RemovalRequest = o.removalRequests.policy(spec.Guard, o.holdAll)
	p.Orphan = spec.DeletionPolicy == appsv1.DeletionOrphan
	if g := spec.Guard; g != nil {
		if g.ProtectKinds != nil {
			p.ProtectKinds = g.ProtectKinds
		}
		p.MaxDeletes = int(ptr.Deref(g.MaxDeletes, appsv1.DefaultMaxDeletes))
		p.MaxDeletePercent = int(ptr.Deref(g.MaxDeletePercent, appsv1.DefaultMaxDeletePercent))
	}
	p.Report = o.report
	p.ApprovedDigest = o.req.Object.Annotations[appsv1.ApproveAnnotation]
	if spec.Drift != nil {
		p.Ignore = spec.Drift.Ignore
		p.Drift = cmp.Or(spec.Drift.Mode, p.Drift)
	}
	return p
}

// keepUntilFinalPlan keeps what a provisional plan lacks.
func keepUntilFinalPlan(string) plan.HandoverDecision {
	return plan.HandoverDecision{Wait: "objects that the stack lacks are kept until its dependencies are ready: they " +
		"may change what its charts render"}
}

// Manifest implements engine.Owner.
func (o *owner) Manifest(ctx context.Context, it *plan.Item) (json.RawMessage, error) {
	if it.Object.Manifest != nil { // of a hook that a Secret keeps
		return it.Object.Manifest, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.manifests == nil {
		res, err := o.rerender(ctx)
		if err != nil {
			return nil, err
		}
		o.storeManifests(&res)
	}
	m, ok := o.manifests[manifestKey(it.Component, &it.Object)]
	if !ok {
		return nil, fmt.Errorf("the rendered stack has no manifest of %s", it.Ref)
	}
	return m, nil
}

// storeManifests moves the manifests of a render into the owner until the end of the reconcile.
// Plans do not need them, and the renderer keeps them compressed.
func (o *owner) storeManifests(res *stacks.Result) {
	o.manifests = map[string]json.RawMessage{}
	for i := range res.Components {
		c := &res.Components[i]
		for j := range c.Objects {
			obj := &c.Objects[j]
			o.manifests[manifestKey(c.Name, obj)], obj.Manifest = obj.Manifest, nil
		}
		for j := range c.Tests {
			obj := &c.Tests[j]
			o.manifests[manifestKey(c.Name+testSuffix, obj)], obj.Manifest = obj.Manifest, nil
		}
	}
}

// manifestKey identifies an object of a render. It has no namespace, because the namespace of an
// item may be removed once the scope of its kind is known.
func manifestKey(component string, obj *stacks.Object) string {
	return component + "/" + obj.Group + "/" + obj.Kind + "/" + obj.Name + "/" + obj.Hash
}

// Persist implements engine.Owner.
func (o *owner) Persist(ctx context.Context) error {
	first := o.req.Object.Status.Cluster == ""
	if o.account != nil {
		o.req.Object.Status.ServiceAccount = o.account
	}
	if err := o.flush(ctx); err != nil {
		return err
	}
	if err := o.req.Persist(ctx, "applying revision "+o.req.Object.Status.LastAttemptedRevision); err != nil {
		return err
	}
	if first && o.ensureCluster != nil {
		return o.ensureCluster(ctx)
	}
	return nil
}

// flush stores the inventory in the status, and the part that does not fit there in chunks.
func (o *owner) flush(ctx context.Context) error {
	status, err := o.chunks.SaveInventory(ctx, o.key, o.inv)
	if err != nil {
		return err
	}
	st := &o.req.Object.Status
	if o.account != nil && o.changedObjects { // with another write: it needs none of its own
		st.ServiceAccount = o.account
	}
	st.Inventory, st.Cluster = status, target.StatusCluster(o.key.Cluster, status)
	st.ClusterUID = target.StatusUID(st.ClusterUID, o.uid, status)
	return nil
}

// sharedDefinitions returns the names of the CustomResourceDefinitions of others that an install
// uses after a pass, sorted. One that it used before counts until it is refused or its own: while
// the index is not synced, or its owner creates it again, the plan does not know it.
func sharedDefinitions(before []string, components []plan.Component, p *plan.Plan,
	inv *plan.Inventory) (out []string) {
	used := map[string]bool{}
	for _, name := range before {
		used[name] = true
	}
	for i := range p.Shared {
		used[p.Shared[i].Item.Name] = true
	}
	refused := map[string]bool{}
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Verb == plan.VerbRefuse {
			refused[w.Entry.ID] = true
		}
	}
	for _, name := range definitionNames(components) {
		e, recorded := inv.Get(definitionID(name))
		if own := recorded && !plan.Uncreated(&e); used[name] && !own && !refused[definitionID(name)] {
			out = append(out, name)
		}
	}
	return out
}

func definitionID(name string) string {
	return stacks.Ref{Group: stacks.DefinitionKind.Group, Kind: stacks.DefinitionKind.Kind, Name: name}.ID()
}

// definitionNames returns the names of the CustomResourceDefinitions of components, sorted.
func definitionNames(components []plan.Component) (out []string) {
	for i := range components {
		for j := range components[i].Items {
			if it := &components[i].Items[j]; it.GroupKind() == stacks.DefinitionKind {
				out = append(out, it.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reportChanges emits events about the changes of a reconcile that are more than applying the
// rendered objects: one event for each kind of change.
func (s *Steps) reportChanges(o *owner, rep *engine.Report) {
	o.changedObjects = o.changedObjects || len(rep.Changes) > 0
	summaries := func(is func(engine.Change) bool) (out []string) {
		for _, c := range rep.Changes {
			if is(c) {
				out = append(out, changeSummary(c))
			}
		}
		return out
	}
	drifted := func(c engine.Change) bool {
		return c.Reason == plan.ReasonDrifted || c.Reason == plan.ReasonMissing
	}
	if n := len(summaries(drifted)); n > 0 {
		s.RecordDriftCorrections(client.ObjectKeyFromObject(o.req.Object), n)
	}
	eventTypes := []struct {
		reason, kind string
		is           func(engine.Change) bool
	}{
		{"DriftCorrected", corev1.EventTypeNormal, drifted},
		{"Adopted", corev1.EventTypeNormal, func(c engine.Change) bool {
			return c.Reason == plan.ReasonNew && c.Message != ""
		}},
		{"Recreated", corev1.EventTypeNormal, func(c engine.Change) bool {
			return c.Reason == plan.ReasonChanged && c.Verb == plan.VerbDelete
		}},
		{"PreRemove", corev1.EventTypeNormal, func(c engine.Change) bool {
			return c.Reason == plan.ReasonPreRemove && c.Verb != plan.VerbSkip
		}},
		{"PreRemoveSkipped", corev1.EventTypeWarning, func(c engine.Change) bool {
			return c.Reason == plan.ReasonPreRemove && c.Verb == plan.VerbSkip
		}},
		{"HandedOver", corev1.EventTypeNormal, func(c engine.Change) bool { return c.Verb == plan.VerbHandOver }},
		{"Released", corev1.EventTypeWarning, func(c engine.Change) bool {
			return c.Verb == plan.VerbDrop || c.Verb == plan.VerbRelease
		}},
	}
	for _, e := range eventTypes {
		if changes := summaries(e.is); len(changes) > 0 {
			o.req.Event(e.kind, e.reason, reconcile.JoinNames(changes))
		}
	}
}

func changeSummary(c engine.Change) string {
	if c.Message == "" {
		return c.Ref.String()
	}
	return c.Ref.String() + " (" + c.Message + ")"
}
