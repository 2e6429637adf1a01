package kind

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/clusters/dependency"
)

// Dependencies watches the objects that the objects of one kind depend on, through a watcher that
// all kinds share.
type Dependencies struct {
	kind    string
	watcher *dependency.Watcher
}

// DependenciesOf returns the dependencies of a kind.
func DependenciesOf(kind string, watcher *dependency.Watcher) *Dependencies {
	return &Dependencies{kind: kind, watcher: watcher}
}

// SetDependencies replaces the objects that an object depends on.
func (d *Dependencies) SetDependencies(user types.NamespacedName, targets []dependency.Object) {
	d.watcher.SetDependencies(queueKey(d.kind, user), targets)
}

// Version returns the resourceVersion of an object, see dependency.Watcher.
func (d *Dependencies) Version(t dependency.Object) (version string, known bool) {
	return d.watcher.Version(t)
}

// Subscribe does nothing: the shared watcher has one subscriber for all kinds.
func (d *Dependencies) Subscribe(func(types.NamespacedName)) {}
