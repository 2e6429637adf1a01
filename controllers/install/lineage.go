package install

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// A stack must not contain the install that applies it, an install that created that one, or a
// KsctlRemove of one of them: each would undo itself without end.

// updateLineage finds the installs that created an install, and those among its objects, which it
// releases.
func (s *Steps) updateLineage(ctx context.Context, o *owner) error {
	o.lineage, o.released = nil, nil
	if o.key.Cluster != plan.LocalCluster || s.Served != nil {
		return nil // installs of another cluster have other controllers
	}
	in := o.req.Object
	name := client.ObjectKeyFromObject(in)
	o.lineage = map[types.NamespacedName]bool{name: true}
	for {
		parent, ok := s.parentInstall(in)
		if !ok || o.lineage[parent] {
			break
		}
		o.lineage[parent] = true
		in = &appsv1.KsctlInstall{}
		if err := s.Client.Get(ctx, parent, in, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for ancestor := range o.lineage {
		id := installObject(ancestor).ID()
		if _, listed := o.inv.Get(id); listed {
			if o.released == nil {
				o.released = map[string]string{}
			}
			o.released[id] = lineageReason(name, ancestor)
		}
	}
	return nil
}

func installObject(name types.NamespacedName) stacks.Ref {
	return stacks.Ref{Group: appsv1.GroupVersion.Group, Kind: appsv1.KsctlInstallKind, Namespace: name.Namespace,
		Name: name.Name}
}

// lineageReason returns why an install cannot contain an install of its lineage.
func lineageReason(name, ancestor types.NamespacedName) string {
	if name == ancestor {
		return "KsctlInstall " + name.String() +
			" applies this stack, so the stack cannot contain it: remove it from the stack"
	}
	return "KsctlInstall " + ancestor.String() + " created KsctlInstall " + name.String() +
		", which applies this stack: remove it from the stack"
}

// refuseLineage makes the objects of a stack invalid that would change its own lineage.
func (o *owner) refuseLineage(components []plan.Component) {
	name := types.NamespacedName{Namespace: o.key.Namespace, Name: o.key.Name}
	for i := range components {
		for j := range components[i].Items {
			it := &components[i].Items[j]
			if it.Group != appsv1.GroupVersion.Group {
				continue
			}
			self := types.NamespacedName{Namespace: it.Namespace, Name: it.Name}
			removed, removes := o.rendered.removes[it.ID]
			switch {
			case it.Kind == appsv1.KsctlInstallKind && o.lineage[self]:
				it.ResolveErr = plan.NewInvalidObjectError("%s", lineageReason(name, self))
			case removes && o.lineage[removed]:
				it.ResolveErr = plan.NewInvalidObjectError("the removal of KsctlInstall %s would remove this stack, "+
					"too: remove the KsctlRemove from the stack", removed)
			}
		}
	}
}

// removedInstalls returns the installs that the KsctlRemoves of a rendered stack remove, by the id
// of the KsctlRemove.
func removedInstalls(res *stacks.Result) map[string]types.NamespacedName {
	var out map[string]types.NamespacedName
	for i := range res.Components {
		for j := range res.Components[i].Objects {
			obj := &res.Components[i].Objects[j]
			var rm appsv1.KsctlRemove
			if obj.Group != appsv1.GroupVersion.Group || obj.Kind != appsv1.KsctlRemoveKind ||
				json.Unmarshal(obj.Manifest, &rm) != nil || rm.Spec.InstallRef == nil {
				continue // the API server answers to an invalid one
			}
			if out == nil {
				out = map[string]types.NamespacedName{}
			}
			out[obj.ID()] = types.NamespacedName{Namespace: obj.Namespace, Name: rm.Spec.InstallRef.Name}
		}
	}
	return out
}
