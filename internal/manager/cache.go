package manager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// cacheOptions returns what the manager's cache watches: the controller's own kinds, and the
// objects that installs refer to. The live index watches the objects that installs own. selector is
// --watch-label-selector; nil selects all installs.
func cacheOptions(o *Options, scheme *runtime.Scheme, selector labels.Selector) (cache.Options, error) {
	out := cache.Options{Scheme: scheme, DefaultTransform: stripCachedObject,
		ByObject: map[client.Object]cache.ByObject{}}
	if !o.Watch.AllNamespaces {
		out.DefaultNamespaces = map[string]cache.Config{o.RuntimeNamespace: {}}
	}
	if selector != nil {
		out.ByObject[&appsv1.KsctlInstall{}] = cache.ByObject{Label: selector}
	}
	if o.Watch.ConfigsLabelSelector != "" {
		sel, err := labels.Parse(o.Watch.ConfigsLabelSelector)
		if err != nil {
			return out, fmt.Errorf("--watch-configs-label-selector: %w", err)
		}
		out.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Label: sel}
		out.ByObject[&corev1.Secret{}] = cache.ByObject{Label: sel}
	}
	return out, nil
}

// stripCachedObject drops the metadata that no reconciler reads, to save memory in the cache.
func stripCachedObject(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		m.Annotations, m.Labels, m.OwnerReferences = nil, nil, nil
	}
	return obj, nil
}
