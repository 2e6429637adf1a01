package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// awaitReleases makes the index notify the owner when another owner releases an object that it
// waits for. It returns true if that happened since the plan was made: no notification follows
// then.
func (a *executor) awaitReleases(p *plan.Plan) bool {
	var refs []stacks.Ref
	var owners []string
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Reason == plan.ReasonOwnedByOther && w.Live != nil {
			refs, owners = append(refs, w.Item.Ref), append(owners, w.Live.Mark.Owner)
		}
	}
	a.target.Index.SetAwaited(a.ownerKey, refs)
	for i, ref := range refs {
		if l, ok := a.target.Index.Get(ref); !ok || l.Mark.Owner != owners[i] {
			return true
		}
	}
	return false
}

// observeOtherOwner adds an object of another owner of this installation to the index. It returns
// true if the index will observe a change of the owner.
func (a *executor) observeOtherOwner(u *unstructured.Unstructured) bool {
	if u.GetLabels()[live.OwnerLabel] != a.owner.Key().Installation {
		return false
	}
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return false
	}
	known, ok := a.target.Index.Get(o.Ref)
	return ok && known.UID == o.UID && known.Mark.Owner != a.ownerKey
}
