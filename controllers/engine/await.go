package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// await has the index wake the owner when somebody else gives up an object that
// it wants. It reports whether that happened since the plan was made, so that
// nothing would tell of it.
func (e *Engine) await(t *Target, o Owner, p *Plan) bool {
	var refs []stacks.Ref
	var owners []string
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Reason == Owned && w.Live != nil {
			refs, owners = append(refs, w.Item.Ref), append(owners, w.Live.Mark.Owner)
		}
	}
	t.Index.Await(o.Key().String(), refs)
	for i, ref := range refs {
		if l, ok := t.Index.Get(ref); !ok || l.Mark.Owner != owners[i] {
			return true
		}
	}
	return false
}

// watched tells the index of an object that another owner of this installation
// has, and reports whether it will hear when that changes.
func (a *actor) watched(u *unstructured.Unstructured) bool {
	if u.GetLabels()[live.OwnerLabel] != a.owner.Key().Installation {
		return false
	}
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return false
	}
	known, ok := a.target.Index.Get(o.Ref)
	return ok && known.UID == o.UID && known.Mark.Owner != a.owner.Key().String()
}
