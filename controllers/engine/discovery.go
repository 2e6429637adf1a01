package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// ServerDiscovery is the Discovery of one API server. It caches the result of discovery until
// Invalidate or MarkChanged; call MarkChanged on events of CustomResourceDefinitions and
// APIServices. Callers without a cached result wait for the discovery, but not longer than their
// context.
type ServerDiscovery struct {
	client discovery.DiscoveryInterfaceWithContext
	// fetchSlot has capacity 1: it is full while one caller sends the discovery requests.
	fetchSlot chan struct{}

	mu         sync.Mutex // guards the fields below; not held during requests
	lastResult *discoveryResult
	// fetchedAt is the start of the last discovery, and changedAt the time of the last MarkChanged.
	fetchedAt, changedAt time.Time
	// generation counts invalidations: a result of an older generation is not cached.
	generation int
}

// discoveryResult is the result of one discovery.
type discoveryResult struct {
	mapper meta.RESTMapper
	// kinds has the exact kinds: the mapper accepts other spellings, too.
	kinds map[schema.GroupVersionKind]bool
	// mappings caches resolved mappings: the mapper searches all kinds each time.
	mappings sync.Map // of schema.GroupVersionKind to *meta.RESTMapping
	lists    []*metav1.APIResourceList
	// missingVerbs has the resources without a verb that the engine needs.
	missingVerbs map[schema.GroupVersionResource][]string
	// partial is set when a group did not answer: a missing kind is then no proof of its absence.
	partial error
	// capabilities are the capabilities for rendering.
	capabilities stacks.Capabilities
}

// NewServerDiscovery returns a Discovery of an API server.
func NewServerDiscovery(client discovery.DiscoveryInterfaceWithContext) *ServerDiscovery {
	return &ServerDiscovery{client: client, fetchSlot: make(chan struct{}, 1)}
}

// Invalidate drops the cached result. The next call starts a new discovery.
func (d *ServerDiscovery) Invalidate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastResult = nil
	d.generation++
}

// cached returns the cached result if it is recent enough for a call at some time, else nil; and
// the current generation.
func (d *ServerDiscovery) cached(at time.Time) (s *discoveryResult, generation int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastResult == nil || d.outdated(at) {
		return nil, d.generation
	}
	return d.lastResult, d.generation
}

// discover returns the cached result, or starts a discovery. One caller at a time does; the others
// wait for its result.
func (d *ServerDiscovery) discover(ctx context.Context) (*discoveryResult, error) {
	at := time.Now()
	if s, _ := d.cached(at); s != nil {
		return s, nil
	}
	select {
	case d.fetchSlot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.fetchSlot }()
	s, generation := d.cached(at)
	if s != nil {
		return s, nil
	}
	began := time.Now()
	s, err := d.fetch(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fetchedAt = began
	if err == nil && d.generation == generation {
		d.lastResult = s
	}
	return s, err
}

// fetch sends the discovery requests.
func (d *ServerDiscovery) fetch(ctx context.Context) (*discoveryResult, error) {
	groups, lists, err := d.client.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && (ctx.Err() != nil || !errors.As(err, &failed)) {
		return nil, err // an interrupted discovery is not a partial result
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
	return &discoveryResult{mapper: restmapper.NewDiscoveryRESTMapper(resources), kinds: kinds, lists: lists,
		missingVerbs: missingVerbs(lists), partial: err,
		capabilities: capabilities(version.GitVersion, lists)}, nil
}

// Resolve implements Resolver.
func (d *ServerDiscovery) Resolve(ctx context.Context, group, version, kind string) (*meta.RESTMapping, error) {
	s, err := d.discover(ctx)
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
	return nil, &plan.NotServedError{GVK: gvk, BuiltIn: plan.IsBuiltIn(group)}
}

// MissingVerbs implements Resolver.
func (d *ServerDiscovery) MissingVerbs(ctx context.Context, m *meta.RESTMapping) []string {
	s, err := d.discover(ctx)
	if err != nil {
		return nil
	}
	return s.missingVerbs[m.Resource]
}

// IsCustom implements Resolver. It sends a request for a group that is not built in: callers ask
// only about the few objects for which the answer matters.
func (d *ServerDiscovery) IsCustom(ctx context.Context, m *meta.RESTMapping) bool {
	return !plan.IsBuiltIn(m.Resource.Group) &&
		d.client.RESTClient().Get().AbsPath("apis", crdResource.Group, crdResource.Version, crdResource.Resource,
			m.Resource.GroupResource().String()).
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
			Do(ctx).Error() == nil
}

// missingVerbs returns the resources without a verb that the engine needs, with the missing verbs.
// Subresources are left out. A resource without patch is not among them: a kind whose definition is
// being deleted has none, and the API server rejects the patches of others.
func missingVerbs(lists []*metav1.APIResourceList) map[schema.GroupVersionResource][]string {
	out := map[schema.GroupVersionResource][]string{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue // no mapping has it
		}
		for i := range l.APIResources {
			r := &l.APIResources[i]
			for _, verb := range []string{"get", "list", "watch", "delete"} {
				if !slices.Contains(r.Verbs, verb) && !strings.Contains(r.Name, "/") {
					out[gv.WithResource(r.Name)] = append(out[gv.WithResource(r.Name)], verb)
				}
			}
		}
	}
	return out
}

// Absent implements Discovery.
func (d *ServerDiscovery) Absent(ctx context.Context, gk schema.GroupKind) (bool, error) {
	d.Invalidate()
	s, err := d.discover(ctx)
	if err != nil {
		return false, err
	}
	if s.partial != nil {
		return false, nil //nolint:nilerr // a group that did not answer proves no absence, and is no failure
	}
	if _, err = s.mapper.RESTMapping(gk); meta.IsNoMatchError(err) {
		return true, nil
	}
	return false, err
}

// NamespacedResources implements Discovery.
func (d *ServerDiscovery) NamespacedResources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	s, err := d.discover(ctx)
	if err != nil {
		return nil, err
	}
	if s.partial != nil {
		return nil, s.partial
	}
	// Resources that cannot be deleted are views of other objects, such as PodMetrics. A resource
	// is listed once, in the first version that serves it.
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

// Capabilities returns the capabilities of the cluster, for rendering.
func (d *ServerDiscovery) Capabilities(ctx context.Context) (stacks.Capabilities, error) {
	s, err := d.discover(ctx)
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

// Serves is true when the server serves a kind in any version. It returns an error if that is not
// known because the server, or the kind's API group, did not answer.
func (d *ServerDiscovery) Serves(ctx context.Context, gk schema.GroupKind) (bool, error) {
	s, err := d.discover(ctx)
	if err != nil {
		return false, err
	}
	_, err = s.mapper.RESTMapping(gk)
	if meta.IsNoMatchError(err) {
		return false, s.groupError(gk.Group)
	}
	return err == nil, err
}

// groupError returns an error if a version of a group did not answer.
func (s *discoveryResult) groupError(group string) error {
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

// MarkChanged records that a CustomResourceDefinition or an APIService has changed.
func (d *ServerDiscovery) MarkChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastResult, d.changedAt = nil, time.Now()
	d.generation++
}

// Discovery may lag behind a change of the served kinds for settlePeriod. During this time it is
// repeated at settleInterval.
const (
	settlePeriod   = 10 * time.Second
	settleInterval = 200 * time.Millisecond
)

// Settling is true while the last result may be out of date.
func (d *ServerDiscovery) Settling() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.changedAt) < settlePeriod
}

// outdated is true when the last result may not include a recent change, or when it is partial and
// older than settlePeriod. The caller holds the lock.
func (d *ServerDiscovery) outdated(at time.Time) bool {
	if d.lastResult.partial != nil && at.Sub(d.fetchedAt) >= settlePeriod {
		return true
	}
	return at.Sub(d.changedAt) < settlePeriod && at.Sub(d.fetchedAt) >= settleInterval
}
