package dependency

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/live"
)

// Object is an object that others depend on.
type Object = live.ObjectName

// ObjectOf returns the Object with a kind and a name. It ignores the namespace of cluster-scoped
// kinds.
func ObjectOf(m *meta.RESTMapping, name types.NamespacedName) Object {
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		name.Namespace = ""
	}
	return Object{Resource: m.Resource, NamespacedName: name}
}

// Watcher watches objects for as long as they have dependents.
type Watcher struct {
	*live.ObjectWatcher[types.NamespacedName, string]
}

// New returns a Watcher for the cluster of cfg.
func New(cfg *rest.Config) (*Watcher, error) {
	w, err := live.NewObjectWatcher[types.NamespacedName](cfg, metav1.Object.GetResourceVersion)
	return &Watcher{w}, err
}

// SetDependencies replaces the objects that a dependent depends on.
func (w *Watcher) SetDependencies(user types.NamespacedName, objects []Object) {
	w.SetObjects(user, objects)
}

// Version returns the last observed resource version of an object, empty if the object does not
// exist. known is false until the object was listed.
func (w *Watcher) Version(t Object) (version string, known bool) { return w.State(t) }
