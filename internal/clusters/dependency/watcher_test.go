package dependency

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestObjectOf(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "x"}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if got := ObjectOf(&meta.RESTMapping{Resource: configMaps, Scope: meta.RESTScopeNamespace},
		name); got != (Object{Resource: configMaps, NamespacedName: name}) {
		t.Errorf("got %v", got)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if got := ObjectOf(&meta.RESTMapping{Resource: namespaces, Scope: meta.RESTScopeRoot},
		name); got != (Object{Resource: namespaces, NamespacedName: types.NamespacedName{Name: "x"}}) {
		t.Errorf("got %v", got)
	}
}
