package install

import (
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// Plans remember which installs there are and what each wants as of which
// artifact, for as long as the process lives: whether an object that left one
// install is wanted by another one. Asking takes no look at every install.
type Plans struct {
	mu      sync.Mutex
	members map[types.NamespacedName]*member
	// bySource has the members of a source and a cluster, by the artifact that they planned.
	bySource map[origin]map[string]*group
	// followers take over from an install.
	followers map[types.NamespacedName]map[types.NamespacedName]*member
	// byID has the members that want an object, by the hash of its id.
	byID  map[uint64][]*member
	waits waits
	// awaiting are the installs that go once others went which depend on them.
	awaiting map[types.NamespacedName]bool
	wake     func(types.NamespacedName)
}

// origin is what those have in common who may want the same object.
type origin struct{ cluster, source string }

// unplanned is the artifact of a member that made no plan in this process.
const unplanned = ""

// member is one install and what it wants.
type member struct {
	name types.NamespacedName
	// cluster that it is for, and source of its stack, which tells who may want the same.
	cluster, source string
	// follows is the install that it takes over from; empty: none.
	follows types.NamespacedName
	leaving bool
	stuck   string
	// places where it has objects, once asked.
	places func() []string
	// artifact that it planned, and the hashed ids of the objects that it wants of it.
	artifact string
	ids      []uint64
	at       int // in its group
}

func (m *member) origin() origin { return origin{cluster: m.cluster, source: m.source} }

// group are members in no order. A slice, because a map that was emptied to a few
// takes as long to walk as when it was full.
type group struct{ list []*member }

func (g *group) add(m *member) {
	m.at = len(g.list)
	g.list = append(g.list, m)
}

func (g *group) remove(m *member) {
	last := g.list[len(g.list)-1]
	g.list[m.at], last.at = last, m.at
	g.list[len(g.list)-1] = nil
	g.list = g.list[:len(g.list)-1]
}

// NewPlans returns an empty memory.
func NewPlans() *Plans {
	return &Plans{
		members:   map[types.NamespacedName]*member{},
		bySource:  map[origin]map[string]*group{},
		followers: map[types.NamespacedName]map[types.NamespacedName]*member{},
		byID:      map[uint64][]*member{},
		waits:     newWaits(),
		awaiting:  map[types.NamespacedName]bool{},
		wake:      func(types.NamespacedName) {},
	}
}

// Subscribe calls wake with each install whose wait for the plans of others is over.
func (p *Plans) Subscribe(wake func(types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake = wake
}

// hashID is the hash of an object of a cluster.
func hashID(cluster, id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(cluster))
	h.Write([]byte{0})
	h.Write([]byte(id))
	return h.Sum64()
}

// seen records an install as the cache has it.
func (p *Plans) seen(in *appsv1.KsctlInstall) {
	p.mu.Lock()
	m := p.members[client.ObjectKeyFromObject(in)]
	if m == nil {
		m = &member{name: client.ObjectKeyFromObject(in)}
		p.members[m.name] = m
	}
	before := *m
	p.leave(m)
	m.describe(in)
	p.enter(m)
	var woken []types.NamespacedName
	if before.cluster != m.cluster || before.source != m.source || before.follows != m.follows || before.leaving != m.leaving || before.stuck != m.stuck {
		woken = p.review(p.waits.on(m.name))
	}
	p.unlockAndWake(woken)
}

// know is true when they were told of an install as the cache has it, as far as those
// care from whom it takes over.
func (p *Plans) know(in *appsv1.KsctlInstall) bool {
	var as member
	as.describe(in)
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[client.ObjectKeyFromObject(in)]
	return m != nil && m.follows == as.follows && m.leaving == as.leaving
}

// describe takes over what an install says of itself.
func (m *member) describe(in *appsv1.KsctlInstall) {
	m.cluster, m.source, m.follows = target.OfInstall(in), sourceField(in), types.NamespacedName{}
	// One for many clusters has nothing itself.
	m.leaving, m.stuck = in.DeletionTimestamp != nil || askedWhole(in) || isFleet(in), whyNot(in)
	if t := in.Spec.TakeOver; t != nil {
		m.follows = types.NamespacedName{Namespace: in.Namespace, Name: t.Name}
	}
	m.places = sync.OnceValue(func() []string { return places(in) })
}

// gone forgets an install that is no more.
func (p *Plans) gone(install types.NamespacedName) {
	p.mu.Lock()
	if m := p.members[install]; m != nil {
		p.leave(m)
		p.want(m, nil)
		delete(p.members, install)
	}
	p.waits.clear(install)
	delete(p.awaiting, install)
	p.unlockAndWake(p.review(p.waits.on(install)))
}

// put records what an install wants of an artifact.
func (p *Plans) put(in *appsv1.KsctlInstall, artifact string, components []engine.Component) {
	var ids []uint64
	cluster := target.OfInstall(in)
	for i := range components {
		for j := range components[i].Items {
			ids = append(ids, hashID(cluster, components[i].Items[j].ID))
		}
	}
	slices.Sort(ids)
	p.mu.Lock()
	m := p.members[client.ObjectKeyFromObject(in)]
	if m == nil { // its event is on the way
		m = &member{name: client.ObjectKeyFromObject(in)}
		m.describe(in.DeepCopy())
		p.members[m.name] = m
		p.enter(m)
	}
	if m.artifact == artifact && slices.Equal(m.ids, ids) {
		p.mu.Unlock()
		return
	}
	p.leave(m)
	m.artifact = artifact
	p.enter(m)
	wanted := p.want(m, ids)
	p.unlockAndWake(append(p.review(p.waits.on(m.name)), p.review(wanted)...))
}

// want replaces what a member wants, and returns the waits for what is new in it.
func (p *Plans) want(m *member, ids []uint64) (concerned []*wait) {
	for _, id := range m.ids {
		if _, still := slices.BinarySearch(ids, id); still {
			continue
		}
		p.byID[id] = slices.DeleteFunc(p.byID[id], func(x *member) bool { return x == m })
		if len(p.byID[id]) == 0 {
			delete(p.byID, id)
		}
	}
	for _, id := range ids {
		if _, before := slices.BinarySearch(m.ids, id); !before && !slices.Contains(p.byID[id], m) {
			p.byID[id] = append(p.byID[id], m)
		}
		concerned = append(concerned, p.waits.about(id)...)
	}
	m.ids = ids
	return concerned
}

// forget drops the plan of an install whose state is read anew.
func (p *Plans) forget(install types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.clear(install)
	delete(p.awaiting, install)
	if m := p.members[install]; m != nil {
		p.leave(m)
		m.artifact = unplanned
		p.enter(m)
		p.want(m, nil)
	}
}

// awaits notes whether an install waits for others to go, or may have to.
func (p *Plans) awaits(install types.NamespacedName, does bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if does {
		p.awaiting[install] = true
	} else {
		delete(p.awaiting, install)
	}
}

// awaitingAny are the installs that wait for others to go.
func (p *Plans) awaitingAny() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.awaiting))
}

// enter puts a member where it is looked for; one that goes wants nothing.
func (p *Plans) enter(m *member) {
	if m.leaving {
		return
	}
	of := p.bySource[m.origin()]
	if of == nil {
		of = map[string]*group{}
		p.bySource[m.origin()] = of
	}
	if of[m.artifact] == nil {
		of[m.artifact] = &group{}
	}
	of[m.artifact].add(m)
	if m.follows.Name == "" {
		return
	}
	if p.followers[m.follows] == nil {
		p.followers[m.follows] = map[types.NamespacedName]*member{}
	}
	p.followers[m.follows][m.name] = m
}

// leave takes a member out from where enter put it.
func (p *Plans) leave(m *member) {
	of := p.bySource[m.origin()]
	if g := of[m.artifact]; g != nil && m.at < len(g.list) && g.list[m.at] == m {
		if g.remove(m); len(g.list) == 0 {
			delete(of, m.artifact)
		}
	}
	if len(of) == 0 {
		delete(p.bySource, m.origin())
	}
	delete(p.followers[m.follows], m.name)
	if len(p.followers[m.follows]) == 0 {
		delete(p.followers, m.follows)
	}
}

// unlockAndWake wakes installs without the lock, which their reconciles take.
func (p *Plans) unlockAndWake(woken []types.NamespacedName) {
	wake := p.wake
	p.mu.Unlock()
	for _, w := range woken {
		wake(w)
	}
}
