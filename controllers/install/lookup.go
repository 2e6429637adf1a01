package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// maxLookupRounds bounds the renders of charts that look up more with what they found.
const maxLookupRounds = 3

// renderWithLookups answers what the templates of a render looked up, and renders again, until they
// ask nothing new. It adds the answers to the request.
func renderWithLookups(ctx context.Context, o *owner, c *engine.Client, req *stacks.Request, res stacks.Result,
	render func(context.Context, stacks.Request) (stacks.Result, error)) (stacks.Result, error) {
	for round := 0; ; round++ {
		answered := map[string]*generated.Values{}
		for component, v := range res.Generated {
			asked := v.AskedQueries()
			if len(asked) == 0 {
				continue
			}
			if round == maxLookupRounds {
				return res, reconcile.NewTerminalError(appsv1.InvalidStackReason, "component %q: lookup of %s: the "+
					"chart looks up more in each render with what it found: at most %d renders in a row are allowed",
					component, asked[0], maxLookupRounds)
			}
			var err error
			if answered[component], err = o.answerLookups(ctx, c, component, &res); err != nil {
				return res, err
			}
		}
		if len(answered) == 0 {
			return res, nil
		}
		req.Generate = req.Generate.With(answered)
		var err error
		if res, err = render(ctx, *req); err != nil {
			return res, err
		}
	}
}

// answerLookups returns the generated values of a component with the answers to what its templates
// asked in a render; nil if they asked nothing.
func (o *owner) answerLookups(ctx context.Context, c *engine.Client, component string,
	res *stacks.Result) (*generated.Values, error) {
	v := res.Generated[component]
	asked := v.AskedQueries()
	if len(asked) == 0 {
		return nil, nil
	}
	out := v.Clone()
	for _, q := range asked {
		answer, err := o.lookup(ctx, c, q, v.Lookups[q.String()], res)
		if err != nil {
			return nil, fmt.Errorf("component %q: lookup of %s: %w", component, q, err)
		}
		out.Lookups[q.String()] = answer
	}
	return out, nil
}

// lookup answers a query. Only objects that the install has are found: others may change at any
// time, and may be of another tenant. res is the render that asks.
func (o *owner) lookup(ctx context.Context, c *engine.Client, q generated.Query, asked generated.Lookup,
	res *stacks.Result) (generated.Lookup, error) {
	gv, err := schema.ParseGroupVersion(q.APIVersion)
	if err != nil {
		return generated.Lookup{}, reconcile.NewTerminalError(appsv1.InvalidStackReason, "%w", err)
	}
	wanted := queried{Query: q, group: gv.Group}
	var found map[string]any
	isOurs := wanted.matchesInventory(o.inv)
	if isOurs || len(o.former) > 0 {
		found, err = o.readQueried(ctx, c, wanted, gv.Version, res)
		if !isOurs && apierrors.IsForbidden(err) {
			err = nil // it belongs to nobody that the account may see
		}
		items, isList := found["items"].([]any)
		isOurs = isOurs || found != nil && !isList || len(items) > 0
	}
	if err != nil {
		return generated.Lookup{}, err
	}
	if found == nil && q.Name == "" {
		found = listOf(q, nil)
	}
	out, err := asked.NewAnswer(found)
	if err != nil {
		return out, reconcile.NewTerminalError(appsv1.InvalidStackReason, "%w", err)
	}
	out.Foreign = !isOurs && !wanted.matchesResult(res)
	return out, nil
}

// queried tells which objects a query is for.
type queried struct {
	generated.Query
	group string
}

func (q queried) matches(ref stacks.Ref) bool {
	return ref.Group == q.group && ref.Kind == q.Kind && (q.Name == "" || ref.Name == q.Name) &&
		(q.Name == "" && q.Namespace == "" || ref.Namespace == q.Namespace)
}

// matchesInventory reports whether an inventory has an object that was created.
func (q queried) matchesInventory(inv *plan.Inventory) bool {
	for id, e := range inv.All() {
		if ref, err := stacks.ParseID(id); err == nil && e.State != appsv1.EntryIntended && q.matches(ref) {
			return true
		}
	}
	return false
}

func (q queried) matchesResult(res *stacks.Result) bool {
	return slices.ContainsFunc(res.Components, func(c stacks.RenderedComponent) bool {
		return slices.ContainsFunc(c.Objects, func(o stacks.Object) bool { return q.matches(o.Ref) })
	})
}

// readQueried reads what a query is for, with the permissions of the install's account. It returns
// nil for an object that does not exist.
func (o *owner) readQueried(ctx context.Context, c *engine.Client, q queried, version string,
	res *stacks.Result) (map[string]any, error) {
	isVisible := func(u *unstructured.Unstructured) bool { return o.hasRecordedMark(u) || o.isFormer(u, res) }
	m, err := o.target.Discovery.Resolve(ctx, q.group, version, q.Kind)
	if notServed := (*plan.NotServedError)(nil); errors.As(err, &notServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	objects := c.Resource(m.Resource).Namespace(q.Namespace)
	if q.Name != "" {
		u, err := objects.Get(ctx, q.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case !isVisible(u):
			return nil, nil
		}
		return withoutStatus(u), nil
	}
	options := metav1.ListOptions{LabelSelector: live.OwnerLabel + "=" + o.key.Installation}
	if len(o.former) > 0 { // objects of Helm have no such label
		options.LabelSelector = ""
	}
	list, err := objects.List(ctx, options)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	items := []any{}
	for i := range list.Items {
		if isVisible(&list.Items[i]) {
			items = append(items, withoutStatus(&list.Items[i]))
		}
	}
	return listOf(q.Query, items), nil
}

func listOf(q generated.Query, items []any) map[string]any {
	return map[string]any{"apiVersion": q.APIVersion, "kind": q.Kind + "List", "items": append([]any{}, items...)}
}

// hasRecordedMark reports whether an object is in the inventory and has the mark of the install.
func (o *owner) hasRecordedMark(u *unstructured.Unstructured) bool {
	mark, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	if err != nil || mark.Owner != o.key.String() {
		return false
	}
	_, recorded := o.inv.Get(mark.ID)
	return recorded
}

// withoutStatus returns an object without what changes by itself.
func withoutStatus(u *unstructured.Unstructured) map[string]any {
	delete(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
	return u.Object
}
