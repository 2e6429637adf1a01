package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// Resolver finds the REST mapping of a kind in a cluster.
type Resolver interface {
	// Resolve returns the mapping of a kind. The error is a *NotServedError when the cluster does
	// not serve the kind. The mapping is shared: it must not be changed.
	Resolve(ctx context.Context, group, version, kind string) (*meta.RESTMapping, error)
	// MissingVerbs returns the verbs that the engine needs, and that the cluster does not serve for
	// a resolved kind, such as SelfSubjectAccessReview, which can only be created. It returns none
	// if that is not known.
	MissingVerbs(ctx context.Context, m *meta.RESTMapping) []string
	// IsCustom reports whether a CustomResourceDefinition defines a resolved kind; false if that is
	// not known.
	IsCustom(ctx context.Context, m *meta.RESTMapping) bool
}

// Prepare converts rendered components for planning: it determines the step, the content hash and
// the REST mapping of each object.
func Prepare(ctx context.Context, rendered []stacks.RenderedComponent, p plan.Policies, r Resolver) []plan.Component {
	out := make([]plan.Component, 0, len(rendered))
	for i := range rendered {
		rc := &rendered[i]
		c := plan.Component{Name: rc.Name, Version: rc.Version, DependsOn: rc.DependsOn, Wave: int32(rc.Wave),
			Retain: rc.Retain}
		if rc.CreateNamespace != "" {
			c.Items = append(c.Items, prepareItem(ctx, sharedNamespace(rc.CreateNamespace), rc, plan.Policies{}, r))
			c.Items[0].Shared = true
		}
		step, preRemovePosition := steps(rc.Objects), preRemovePositions(rc.Objects)
		for j := range rc.Objects {
			o := rc.Objects[j]
			if o.Hook != nil && o.Hook.Stays { // only its step is that of a hook
				o.Hook = nil
			}
			it := prepareItem(ctx, o, rc, p, r)
			it.Step, it.PreRemove = step(&rc.Objects[j]), preRemovePosition(&rc.Objects[j])
			it.RunsOnce = it.RunsOnce && it.PreRemove == 0 // it runs before the removal, not when it is applied
			prepareHook(&it, rc, step)
			if rc.Contribute {
				prepareContribution(&it)
			}
			c.Items = append(c.Items, it)
		}
		out = append(out, c)
	}
	return out
}

// prepareContribution removes what is for whole objects.
func prepareContribution(it *plan.Item) {
	it.Contribute, it.RunsOnce, it.CreateOnly, it.Serves, it.AnsweredBy = true, false, false, nil, nil
	it.ReadyExpr, it.Ignore, it.ContentHash = "", nil, it.Hash
}

// prepareHook prepares a hook of a release, which is applied once for each record and phase,
// whatever its content.
func prepareHook(it *plan.Item, rc *stacks.RenderedComponent, step func(*stacks.Object) int) {
	if it.Hook == nil || !it.RunsOnce || rc.Record.Revision == 0 {
		return
	}
	it.Settled = rc.Record.Complete || it.Hook.Phase == stacks.HookInactive
	hash := func(phase stacks.HookPhase) string {
		return hashContent(rc.Record.Digest, it.ID, []string{strconv.Itoa(rc.Record.Revision), string(phase)})
	}
	it.ContentHash = hash(it.Hook.Phase)
	if !it.Hook.AlsoPost || it.Runs() {
		return
	}
	post, hook := it.Object, *it.Hook
	hook.Phase = stacks.HookPost
	post.Hook = &hook
	switch {
	case !hasRuns(rc.Objects, stacks.HookPost):
	case hasRuns(rc.Objects, stacks.HookPre):
		it.PostStep, it.PostHash = step(&post), hash(stacks.HookPost)
	default:
		it.Object, it.Step, it.ContentHash = post, step(&post), hash(stacks.HookPost)
	}
}

// hasRuns reports whether a Job or a Pod is a hook of a phase.
func hasRuns(objects []stacks.Object, phase stacks.HookPhase) bool {
	return slices.ContainsFunc(objects, func(o stacks.Object) bool {
		it := plan.Item{Object: o, RunsOnce: true}
		return o.Hook != nil && o.Hook.Phase == phase && it.Runs()
	})
}

func prepareItem(ctx context.Context, o stacks.Object, rc *stacks.RenderedComponent, p plan.Policies,
	r Resolver) plan.Item {
	it := plan.Item{Object: o, Component: rc.Name, Wave: int32(rc.Wave)}
	it.Mapping, it.ResolveErr = r.Resolve(ctx, o.Group, o.Version, o.Kind)
	if it.Mapping != nil {
		clusterScoped := it.Mapping.Scope.Name() == meta.RESTScopeNameRoot
		if clusterScoped && it.NamespaceDefaulted {
			it.Namespace = ""
		}
		if err := checkManifest(it.Ref, clusterScoped, r.MissingVerbs(ctx, it.Mapping)); err != nil {
			it.ResolveErr = err
		} else if err := plan.CheckCustomName(it.Ref); err != nil && r.IsCustom(ctx, it.Mapping) {
			it.ResolveErr = err
		}
	}
	it.ID = it.Ref.ID()
	it.RunsOnce = o.Hook != nil || (o.Group == "batch" && o.Kind == "Job")
	if !plan.IsBuiltIn(o.Group) {
		it.ReadyExpr = rc.ReadyExpr
	}
	if !o.Generated { // whatever the rules say, the next render needs its values
		it.Ignore = append(ignoredPaths(p.Ignore, it.Ref), o.InitialFields...)
	}
	it.ContentHash = hashContent(it.Hash, it.ReadyExpr, it.Ignore)
	if p.Report != nil {
		it.Report = p.Report(it.Ref)
		if !it.RunsOnce { // what is done does not run again because the status reads something else
			it.ContentHash = hashContent(it.ContentHash, it.Report, nil)
		}
	}
	return it
}

// checkManifest returns an error for an object that the API server can never store. missingVerbs
// are those of its kind.
func checkManifest(ref stacks.Ref, clusterScoped bool, missingVerbs []string) *plan.InvalidObjectError {
	switch {
	case clusterScoped && ref.Namespace != "":
		return plan.NewInvalidObjectError("%s is cluster-scoped: remove metadata.namespace %q", ref.Kind, ref.Namespace)
	case len(missingVerbs) > 0:
		return plan.NewInvalidObjectError("the cluster does not serve %s for %s, so its objects are not stored: "+
			"remove it from the stack", strings.Join(missingVerbs, ", "), ref.Kind)
	}
	return plan.CheckName(ref)
}

// hashContent returns the hash of everything that is sent: the hash of the manifest, and what the
// engine adds to it.
func hashContent(hash, expr string, ignore []string) string {
	if expr == "" && len(ignore) == 0 {
		return hash
	}
	b, err := json.Marshal([]any{hash, expr, ignore})
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func ignoredPaths(rules []appsv1.IgnoreRule, ref stacks.Ref) []string {
	var out []string
	for _, r := range rules {
		if r.Target == nil || matches(r.Target, ref) {
			out = append(out, r.Paths...)
		}
	}
	return out
}

func matches(t *appsv1.IgnoreTarget, ref stacks.Ref) bool {
	return (t.Group == "" || t.Group == ref.Group) &&
		(t.Kind == "" || t.Kind == ref.Kind) &&
		(t.Namespace == "" || t.Namespace == ref.Namespace) &&
		(t.Name == "" || t.Name == ref.Name)
}

// sharedNamespace returns the Namespace for createNamespace of a component.
func sharedNamespace(name string) stacks.Object {
	return stacks.Object{Ref: stacks.Ref{Kind: "Namespace", Name: name}, Version: "v1"}
}
