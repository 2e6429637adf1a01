package handover

import (
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// Plans is an in-memory index of all installs, with the objects that each has planned, and from
// which artifact. It answers whether an object that is no longer part of one install is part of
// another install. A lookup does not visit each install.
type Plans struct {
	clock    clock.PassiveClock
	mu       sync.Mutex
	installs map[types.NamespacedName]*installPlan
	// bySource has the installs of a scope, by the artifact that they planned.
	bySource map[planScope]map[string]*planGroup
	// successors has the installs that take over from an install.
	successors map[types.NamespacedName]map[*installPlan]bool
	// provisional has the installs of a scope whose plan is not final, see installPlan.provisional.
	provisional map[planScope]map[*installPlan]bool
	// children has the installs that an install applied.
	children map[types.NamespacedName]map[*installPlan]bool
	// byID has the installs that planned an object, by hashID.
	byID  map[uint64][]*installPlan
	waits planWaits
	// awaitingDependents are the installs whose removal waits for dependents.
	awaitingDependents map[types.NamespacedName]bool
	wake               func(types.NamespacedName)
}

// planScope is common to the installs whose plans decide together about an object that one of them
// no longer has: the cluster with the objects, the namespace, and the source of the stack.
type planScope struct{ cluster, namespace, source string }

// unplanned is the artifact of an install that has no plan in this process.
const unplanned = ""

// installPlan is an install and the objects that it planned.
type installPlan struct {
	name types.NamespacedName
	planScope
	// takesOverFrom is the install that it takes over from. It is empty if there is none.
	takesOverFrom types.NamespacedName
	// claimsNothing is true for an install that is being removed, or that is for many clusters.
	claimsNothing bool
	// suspended is true if the install makes no plan until somebody resumes it.
	suspended bool
	// locations returns the locations of its objects, see objectLocations. It computes them once.
	locations func() []string
	// dependsOn are the installs that it depends on. timeout is its spec.timeout.
	dependsOn []types.NamespacedName
	timeout   time.Duration
	// artifact is the digest of the artifact that it planned. ids are the hashes of the objects
	// that it planned, sorted.
	artifact string
	ids      []uint64
	// definitions are the hashes of the CustomResourceDefinitions that it used according to its
	// status, sorted. Without a plan in this process, it claims these.
	definitions []uint64
	// needs is what the CustomResourceDefinitions that it planned have to serve, by hashID.
	needs      map[uint64]*stacks.ServedKind
	groupIndex int // index in its group
	// provisional is true if its dependencies are not ready, and its objects may change with what
	// these provide.
	provisional bool
	// failedArtifact is the digest of the artifact that it could not render, since failedSince. It
	// then has the objects that it planned before, and those of its inventory. definite is true for
	// an error that only a user can fix.
	failedArtifact string
	failedSince    time.Time
	definite       bool
	// parent is the install that applied it, if there is one.
	parent types.NamespacedName
}

// planGroup is an unordered set of installs. It is a slice, because iterating over a map takes as
// long as at its largest size, also after most entries are deleted.
type planGroup struct{ installs []*installPlan }

func (g *planGroup) add(m *installPlan) {
	m.groupIndex = len(g.installs)
	g.installs = append(g.installs, m)
}

func (g *planGroup) remove(m *installPlan) {
	last := g.installs[len(g.installs)-1]
	g.installs[m.groupIndex], last.groupIndex = last, m.groupIndex
	g.installs[len(g.installs)-1] = nil
	g.installs = g.installs[:len(g.installs)-1]
}

// NewPlans returns an empty index.
func NewPlans(c clock.PassiveClock) *Plans {
	return &Plans{
		clock:       c,
		provisional: map[planScope]map[*installPlan]bool{},
		children:    map[types.NamespacedName]map[*installPlan]bool{},
		installs:    map[types.NamespacedName]*installPlan{},
		bySource:    map[planScope]map[string]*planGroup{},
		successors:  map[types.NamespacedName]map[*installPlan]bool{},
		byID:        map[uint64][]*installPlan{},
		waits: planWaits{byReleasing: map[types.NamespacedName]map[string]*planWait{},
			byBlocker: map[types.NamespacedName]map[*planWait]bool{}, byObject: map[uint64]map[*planWait]bool{}},
		awaitingDependents: map[types.NamespacedName]bool{},
		wake:               func(types.NamespacedName) {},
	}
}

// Subscribe sets the function that is called for each install whose wait for the plans of other
// installs is over.
func (p *Plans) Subscribe(wake func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake = wake
}

// hashID returns the hash of the ID of an object in a cluster.
func hashID(cluster, id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(cluster))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return h.Sum64()
}

// Update records an install as it is in the cache.
func (p *Plans) Update(in *appsv1.KsctlInstall) {
	p.mu.Lock()
	m := p.installs[client.ObjectKeyFromObject(in)]
	if m == nil {
		m = &installPlan{name: client.ObjectKeyFromObject(in)}
		p.installs[m.name] = m
	}
	before := *m
	p.unindex(m)
	m.setFrom(in)
	p.index(m)
	var woken []types.NamespacedName
	if before.planScope != m.planScope || before.takesOverFrom != m.takesOverFrom ||
		before.claimsNothing != m.claimsNothing || before.suspended != m.suspended {
		woken = p.reviewWaits(p.waits.blockedOn(m.name))
	}
	if m.artifact == unplanned && m.failedArtifact == "" {
		woken = append(woken, p.reviewWaits(p.setObjects(m, m.definitions))...)
	}
	p.unlockAndWake(woken)
}

// parentOf returns the install that applied an install, according to its mark; empty if there is
// none.
func parentOf(in *appsv1.KsctlInstall) types.NamespacedName {
	mark, err := live.ParseMark(in.Annotations[live.MarkAnnotation])
	if err != nil {
		return types.NamespacedName{}
	}
	if k, ok := plan.ParseOwnerKey(mark.Owner); ok && k.Kind == appsv1.KsctlInstallKind &&
		k.Cluster == plan.LocalCluster {
		return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
	}
	return types.NamespacedName{}
}

func scopeOf(in *appsv1.KsctlInstall) planScope {
	return planScope{cluster: target.InstallCluster(in), namespace: in.Namespace, source: SourceKey(in)}
}

// IsCurrent reports whether the index has an install as it is in the cache, as far as the installs
// that it takes over from are concerned.
func (p *Plans) IsCurrent(in *appsv1.KsctlInstall) bool {
	var cached installPlan
	cached.setFrom(in)
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.installs[client.ObjectKeyFromObject(in)]
	return m != nil && m.takesOverFrom == cached.takesOverFrom && m.claimsNothing == cached.claimsNothing
}

// setFrom sets the fields that depend only on the KsctlInstall.
func (m *installPlan) setFrom(in *appsv1.KsctlInstall) {
	m.planScope, m.takesOverFrom = scopeOf(in), types.NamespacedName{}
	// An install for many clusters has no objects itself.
	m.claimsNothing, m.suspended = in.DeletionTimestamp != nil || fullRemovalRequested(in) || IsFleet(in),
		in.Spec.Suspend
	if t := in.Spec.TakeOver; t != nil {
		m.takesOverFrom = types.NamespacedName{Namespace: in.Namespace, Name: t.Name}
	}
	m.parent = parentOf(in)
	m.dependsOn, m.timeout = dependency.Installs(in), reconcile.Timeout(&in.Spec.Schedule)
	m.locations = sync.OnceValue(func() []string { return objectLocations(in) })
	m.definitions = nil
	for _, name := range in.Status.SharedDefinitions {
		ref := stacks.Ref{Group: stacks.DefinitionKind.Group, Kind: stacks.DefinitionKind.Kind, Name: name}
		m.definitions = append(m.definitions, hashID(m.cluster, ref.ID()))
	}
	slices.Sort(m.definitions)
}

// Remove removes a deleted install.
func (p *Plans) Remove(install types.NamespacedName) {
	p.mu.Lock()
	if m := p.installs[install]; m != nil {
		p.unindex(m)
		p.setObjects(m, nil)
		delete(p.installs, install)
	}
	p.waits.clear(install)
	delete(p.awaitingDependents, install)
	p.unlockAndWake(p.reviewWaits(p.waits.blockedOn(install)))
}

// RecordPlan records the objects that an install planned from an artifact. provisional is true if
// the plan may change when the dependencies of the install are ready.
func (p *Plans) RecordPlan(in *appsv1.KsctlInstall, artifact string, components []plan.Component, provisional bool) {
	var ids []uint64
	needs := map[uint64]*stacks.ServedKind{}
	cluster := target.InstallCluster(in)
	for i := range components {
		for j := range components[i].Items {
			it := &components[i].Items[j]
			if it.Contribute {
				continue // the object stays with its owner
			}
			if _, invalid := errors.AsType[*plan.InvalidObjectError](it.ResolveErr); !invalid { // it is never applied
				ids = append(ids, hashID(cluster, it.ID))
			}
			if it.Serves != nil {
				needs[hashID(cluster, it.ID)] = it.Serves
			}
		}
	}
	slices.Sort(ids)
	p.mu.Lock()
	m := p.installFor(in)
	if m.artifact == artifact && m.provisional == provisional && m.failedArtifact == "" && slices.Equal(m.ids, ids) &&
		maps.EqualFunc(m.needs, needs, (*stacks.ServedKind).Equal) {
		p.mu.Unlock()
		return
	}
	p.unindex(m)
	m.artifact, m.provisional, m.failedArtifact, m.needs = artifact, provisional, "", needs
	p.index(m)
	p.setObjectsAndWake(m, ids)
}

// setObjectsAndWake sets the objects that an install claims. It unlocks, and wakes the installs
// that waited for this one, or for one of these objects.
func (p *Plans) setObjectsAndWake(m *installPlan, ids []uint64) {
	affected := p.setObjects(m, ids)
	p.unlockAndWake(append(p.reviewWaits(p.waits.blockedOn(m.name)), p.reviewWaits(affected)...))
}

// RecordFailure records that an install could not plan an artifact; definite is true if only a user
// can change that. Until it can, it claims what it planned last, and what its inventory has.
func (p *Plans) RecordFailure(in *appsv1.KsctlInstall, artifact string, inventory *plan.Inventory, definite bool) {
	p.mu.Lock()
	m := p.installFor(in)
	if m.failedArtifact == artifact && m.definite == definite || m.artifact == artifact && !definite {
		p.mu.Unlock()
		return // known, or a plan of the artifact is known
	}
	if m.failedArtifact != artifact {
		m.failedSince = p.clock.Now()
	}
	m.failedArtifact, m.definite = artifact, definite
	ids := slices.Clone(m.ids)
	for id, e := range inventory.All() {
		if e.State != appsv1.EntryContributed {
			ids = append(ids, hashID(m.cluster, id))
		}
	}
	slices.Sort(ids)
	p.setObjectsAndWake(m, slices.Compact(ids))
}

// installFor returns the entry of an install, whose event may not have arrived yet.
func (p *Plans) installFor(in *appsv1.KsctlInstall) *installPlan {
	m := p.installs[client.ObjectKeyFromObject(in)]
	if m == nil {
		m = &installPlan{name: client.ObjectKeyFromObject(in)}
		m.setFrom(in.DeepCopy())
		p.installs[m.name] = m
		p.index(m)
		p.setObjects(m, m.definitions)
	}
	return m
}

// setObjects replaces the planned objects of an install, and returns the waits for these objects.
func (p *Plans) setObjects(m *installPlan, ids []uint64) (affected []*planWait) {
	for _, id := range m.ids {
		if _, still := slices.BinarySearch(ids, id); still {
			continue
		}
		p.byID[id] = slices.DeleteFunc(p.byID[id], func(x *installPlan) bool { return x == m })
		if len(p.byID[id]) == 0 {
			delete(p.byID, id)
		}
	}
	for _, id := range ids {
		if _, before := slices.BinarySearch(m.ids, id); !before && !slices.Contains(p.byID[id], m) {
			p.byID[id] = append(p.byID[id], m)
		}
		affected = append(affected, p.waits.forObject(id)...)
	}
	m.ids = ids
	return affected
}

// DropPlan drops the plan of an install whose state will be read again.
func (p *Plans) DropPlan(install types.NamespacedName) { p.dropPlan(install, false) }

// DropClaims drops the plan of an install that is removed as a whole, and what it used according to
// its status: the event of its new status comes later.
func (p *Plans) DropClaims(install types.NamespacedName) { p.dropPlan(install, true) }

func (p *Plans) dropPlan(install types.NamespacedName, claims bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.clear(install)
	delete(p.awaitingDependents, install)
	if m := p.installs[install]; m != nil {
		if claims {
			m.definitions = nil
		}
		p.unindex(m)
		m.artifact, m.provisional, m.failedArtifact, m.needs = unplanned, false, "", nil
		p.index(m)
		p.setObjects(m, m.definitions)
	}
}

// SetAwaitingDependents records whether the removal of an install waits, or may have to wait, for
// dependents.
func (p *Plans) SetAwaitingDependents(install types.NamespacedName, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting {
		p.awaitingDependents[install] = true
	} else {
		delete(p.awaitingDependents, install)
	}
}

// ListAwaitingDependents returns the installs whose removal waits for dependents.
func (p *Plans) ListAwaitingDependents() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.awaitingDependents))
}

// index adds an install to the indexes, unless it claims nothing.
func (p *Plans) index(m *installPlan) {
	if m.claimsNothing {
		return
	}
	groups := p.bySource[m.planScope]
	if groups == nil {
		groups = map[string]*planGroup{}
		p.bySource[m.planScope] = groups
	}
	if groups[m.artifact] == nil {
		groups[m.artifact] = &planGroup{}
	}
	groups[m.artifact].add(m)
	if m.provisional {
		addToSet(p.provisional, m.planScope, m)
	}
	if m.parent.Name != "" {
		addToSet(p.children, m.parent, m)
	}
	if m.takesOverFrom.Name == "" {
		return
	}
	addToSet(p.successors, m.takesOverFrom, m)
}

// unindex reverts index.
func (p *Plans) unindex(m *installPlan) {
	groups := p.bySource[m.planScope]
	if g := groups[m.artifact]; g != nil && m.groupIndex < len(g.installs) && g.installs[m.groupIndex] == m {
		if g.remove(m); len(g.installs) == 0 {
			delete(groups, m.artifact)
		}
	}
	if len(groups) == 0 {
		delete(p.bySource, m.planScope)
	}
	removeFromSet(p.successors, m.takesOverFrom, m)
	removeFromSet(p.provisional, m.planScope, m)
	removeFromSet(p.children, m.parent, m)
}

// unlockAndWake unlocks, and then calls wake for installs: their reconciles take the same lock.
func (p *Plans) unlockAndWake(woken []types.NamespacedName) {
	wake := p.wake
	p.mu.Unlock()
	for _, w := range woken {
		wake(w)
	}
}
