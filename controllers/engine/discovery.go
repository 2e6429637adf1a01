package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/ksctl/gitops/stacks"
)

// ServerDiscovery is the Discovery of one API server. It asks once and keeps
// the answer until Reset, which an event of a CustomResourceDefinition or an
// APIService calls for. Whoever needs an answer that is not there waits for it, no
// longer than its context lasts.
type ServerDiscovery struct {
	client discovery.DiscoveryInterfaceWithContext
	// asking has room for the one that asks the server.
	asking chan struct{}

	mu     sync.Mutex // for the fields below, never while the server is asked
	served *served
	// asked and changed are when the server was asked last, and when what it
	// serves was seen to change.
	asked, changed time.Time
	// resets tells an answer that is under way that it comes too late.
	resets int
}

// served is one answer of the API server.
type served struct {
	mapper meta.RESTMapper
	// kinds as they are written: the mapper takes other spellings, too.
	kinds map[schema.GroupVersionKind]bool
	// mappings that were asked for: the mapper looks through all kinds each time.
	mappings sync.Map // of schema.GroupVersionKind to *meta.RESTMapping
	lists    []*metav1.APIResourceList
	// partial is set when a group did not answer, so that absence proves nothing.
	partial error
	// capabilities for rendering.
	capabilities stacks.Capabilities
}

// NewServerDiscovery returns a Discovery that asks an API server.
func NewServerDiscovery(client discovery.DiscoveryInterfaceWithContext) *ServerDiscovery {
	return &ServerDiscovery{client: client, asking: make(chan struct{}, 1)}
}

// Reset forgets what the server serves; the next question asks again.
func (d *ServerDiscovery) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset()
}

// reset is Reset with the lock held.
func (d *ServerDiscovery) reset() {
	d.served = nil
	d.resets++
}

// known is the answer that is good enough for a question of some time; nil: none.
func (d *ServerDiscovery) known(at time.Time) (s *served, resets int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil || d.outdated(at) {
		return nil, d.resets
	}
	return d.served, d.resets
}

// ask returns what is known, or asks the server: one at a time does, and the others
// take its answer.
func (d *ServerDiscovery) ask(ctx context.Context) (*served, error) {
	at := time.Now()
	if s, _ := d.known(at); s != nil {
		return s, nil
	}
	select {
	case d.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.asking }()
	s, resets := d.known(at)
	if s != nil {
		return s, nil
	}
	began := time.Now()
	s, err := d.fetch(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = began
	if err == nil && d.resets == resets {
		d.served = s
	}
	return s, err
}

// fetch asks the server.
func (d *ServerDiscovery) fetch(ctx context.Context) (*served, error) {
	groups, lists, err := d.client.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && (ctx.Err() != nil || !errors.As(err, &failed)) {
		return nil, err // what was broken off is no answer in part
	}
	byVersion := map[string]*metav1.APIResourceList{}
	kinds := map[schema.GroupVersionKind]bool{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
		for i := range l.APIResources {
			kinds[schema.FromAPIVersionAndKind(l.GroupVersion, l.APIResources[i].Kind)] = true
		}
	}
	var resources []*restmapper.APIGroupResources
	for _, g := range groups {
		r := &restmapper.APIGroupResources{Group: *g, VersionedResources: map[string][]metav1.APIResource{}}
		for _, v := range g.Versions {
			if l := byVersion[v.GroupVersion]; l != nil {
				r.VersionedResources[v.Version] = l.APIResources
			}
		}
		resources = append(resources, r)
	}
	version, verr := d.client.ServerVersionWithContext(ctx)
	if verr != nil {
		return nil, verr
	}
	return &served{mapper: restmapper.NewDiscoveryRESTMapper(resources), kinds: kinds, lists: lists, partial: err,
		capabilities: capabilities(version.GitVersion, lists)}, nil
}

// Resolve implements Resolver.
func (d *ServerDiscovery) Resolve(ctx context.Context, group, version, kind string) (*meta.RESTMapping, error) {
	s, err := d.ask(ctx)
	if err != nil {
		return nil, err
	}
	gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	if m, ok := s.mappings.Load(gvk); ok {
		return m.(*meta.RESTMapping), nil
	}
	m, err := s.mapper.RESTMapping(gvk.GroupKind(), version)
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	if err == nil && s.kinds[m.GroupVersionKind] {
		s.mappings.Store(gvk, m)
		return m, nil
	}
	return nil, &NotServedError{GVK: gvk, BuiltIn: IsBuiltIn(group)}
}

// Absent implements Discovery.
func (d *ServerDiscovery) Absent(ctx context.Context, gk schema.GroupKind) (bool, error) {
	d.Reset()
	s, err := d.ask(ctx)
	if err != nil {
		return false, err
	}
	if s.partial != nil {
		return false, nil //nolint:nilerr // a group that did not answer proves nothing, and is no failure
	}
	_, err = s.mapper.RESTMapping(gk)
	absent := meta.IsNoMatchError(err)
	if absent {
		err = nil
	}
	return absent, err
}

// Namespaced implements Discovery.
func (d *ServerDiscovery) Namespaced(ctx context.Context) ([]schema.GroupVersionResource, error) {
	s, err := d.ask(ctx)
	if err != nil {
		return nil, err
	}
	if s.partial != nil {
		return nil, s.partial
	}
	// What can't be deleted is a view of something else, such as PodMetrics.
	// Each resource once, whatever versions serve it.
	seen := map[schema.GroupResource]bool{}
	var out []schema.GroupVersionResource
	for _, l := range s.lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			gr := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if !r.Namespaced || seen[gr] || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			seen[gr] = true
			out = append(out, gv.WithResource(r.Name))
		}
	}
	return out, nil
}

// Capabilities are what a render may know of the cluster.
func (d *ServerDiscovery) Capabilities(ctx context.Context) (stacks.Capabilities, error) {
	s, err := d.ask(ctx)
	if err != nil {
		return stacks.Capabilities{}, err
	}
	return s.capabilities, nil
}

func capabilities(version string, lists []*metav1.APIResourceList) stacks.Capabilities {
	out := stacks.Capabilities{KubeVersion: version}
	for _, l := range lists {
		out.APIVersions = append(out.APIVersions, l.GroupVersion)
		for i := range l.APIResources {
			if r := &l.APIResources[i]; slices.Contains(r.Verbs, "get") {
				out.APIVersions = append(out.APIVersions, l.GroupVersion+"/"+r.Kind)
			}
		}
	}
	slices.Sort(out.APIVersions)
	out.APIVersions = slices.Compact(out.APIVersions)
	return out
}

// Serves is true when the server serves a kind in some version. The error says why
// that is not known: nobody answered, or nobody for the kind's group.
func (d *ServerDiscovery) Serves(ctx context.Context, gk schema.GroupKind) (bool, error) {
	s, err := d.ask(ctx)
	if err != nil {
		return false, err
	}
	_, err = s.mapper.RESTMapping(gk)
	if meta.IsNoMatchError(err) {
		return false, s.unanswered(gk.Group)
	}
	return err == nil, err
}

// unanswered is an error when some version of a group did not answer.
func (s *served) unanswered(group string) error {
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(s.partial, &failed) {
		for gv := range failed.Groups {
			if gv.Group == group {
				return s.partial
			}
		}
	}
	return nil
}

// Changed takes note that a CustomResourceDefinition or an APIService changed.
func (d *ServerDiscovery) Changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset()
	d.changed = time.Now()
}

// settling is how long after a change of what is served discovery may lag
// behind it, and settlingStep how often it is asked in that time.
const (
	settling     = 10 * time.Second
	settlingStep = 200 * time.Millisecond
)

// Settling is true while the last answer may be out of date.
func (d *ServerDiscovery) Settling() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.changed) < settling
}

// outdated is true when what changed of late may not be in the last answer, or
// it was an answer in part some time ago. The lock is held.
func (d *ServerDiscovery) outdated(at time.Time) bool {
	if d.served.partial != nil && at.Sub(d.asked) >= settling {
		return true
	}
	return at.Sub(d.changed) < settling && at.Sub(d.asked) >= settlingStep
}
