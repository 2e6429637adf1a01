package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/stacks"
)

// ForgetMissing removes the entries of objects that are gone from the inventory. It changes no
// objects: an owner whose account is gone cannot delete its remaining objects, but may have none
// left, as when its namespace was deleted. The client only reads.
func (e *Engine) ForgetMissing(ctx context.Context, t *Target, reader dynamic.Interface, o Owner) error {
	a := e.newExecutor(Pass{Owner: o, Target: t})
	if err := a.dropImpossible(ctx, nil); err != nil {
		return err
	}
	if err := a.adoptStrays(ctx); err != nil {
		return err
	}
	a.setOwnerKinds(ctx)
	a.forgetUncreated(ctx)
	for _, entry := range o.Inventory().Entries() {
		if a.unsettled[entry.ID] != "" {
			continue
		}
		ref, err := stacks.ParseID(entry.ID)
		if err != nil {
			o.Inventory().Remove(entry.ID)
			continue
		}
		if _, known := t.Index.Get(ref); known {
			continue
		}
		m, err := t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind)
		if err != nil {
			return err
		}
		u, err := reader.Resource(m.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && entry.UID != "" && u.GetUID() != entry.UID:
			o.Inventory().Remove(entry.ID)
		case err != nil:
			return err
		}
	}
	return nil
}
