package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

func newObject(apiVersion, kind, namespace, name string,
	change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID(name + "-uid"))
	for _, f := range change {
		f(u)
	}
	return u
}

func ownedBy(owners ...metav1.OwnerReference) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetOwnerReferences(owners) }
}

func setDeletionTimestamp(u *unstructured.Unstructured) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
}

func TestFindForeignObject(t *testing.T) {
	verbs := []string{"get", "list", "delete"}
	zone := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "g.io/v1", Kind: "Zone", Name: name, UID: types.UID(name + "-uid")}
	}
	app := metav1.OwnerReference{APIVersion: "g.io/v1", Kind: "App", Name: "app", UID: "app-uid"}
	of := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "x"}
	}
	another := zone("there")
	another.UID = "another"
	controllerManager := func(u *unstructured.Unstructured) {
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager"}})
	}
	serviceLabel := func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"})
	}
	for name, tc := range map[string]struct {
		object  *unstructured.Unstructured
		foreign bool
	}{
		"an object without owner references": {newObject("v1", "ConfigMap", "ns", "x"), true},
		"being deleted":                      {newObject("v1", "ConfigMap", "ns", "x", setDeletionTimestamp), false},
		"the CA of each namespace":           {newObject("v1", "ConfigMap", "ns", "kube-root-ca.crt"), false},
		"namespaced owner":                   {newObject("v1", "ConfigMap", "ns", "x", ownedBy(app)), false},
		"cluster-scoped owner":               {newObject("v1", "ConfigMap", "ns", "x", ownedBy(zone("there"))), true},
		"namespaced and cluster-scoped": {newObject("v1", "ConfigMap", "ns", "x", ownedBy(app, zone("there"))),
			true},
		"deleted owner":       {newObject("v1", "ConfigMap", "ns", "x", ownedBy(zone("gone"))), false},
		"owner being deleted": {newObject("v1", "ConfigMap", "ns", "x", ownedBy(zone("going"))), false},
		"recreated owner":     {newObject("v1", "ConfigMap", "ns", "x", ownedBy(another)), false},
		"owner of a deleted kind": {newObject("v1", "ConfigMap", "ns", "x", ownedBy(of("h.io/v1", "X"))),
			false},
		"deleted kind and existing owner": {
			newObject("v1", "ConfigMap", "ns", "x", ownedBy(of("h.io/v1", "X"), zone("there"))),
			true},
		"owner kind in another version": {newObject("v1", "ConfigMap", "ns", "x", ownedBy(of("g.io/v2", "Zone"))),
			true},
		"owner of an unknown built-in kind": {newObject("v1", "ConfigMap", "ns", "x", ownedBy(of("batch/v1", "X"))),
			true},
		"Endpoints of a Service":             {newObject("v1", "Endpoints", "ns", "x", serviceLabel), false},
		"Endpoints of a Service before 1.33": {newObject("v1", "Endpoints", "ns", "x", controllerManager), false},
		"Endpoints of a user":                {newObject("v1", "Endpoints", "ns", "x"), true},
		"kind Endpoints of another group":    {newObject("g.io/v1", "Endpoints", "ns", "x", serviceLabel), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := newAPIServer(resourceList("v1", resource("configmaps", "ConfigMap", true, verbs...),
				resource("endpoints", "Endpoints", true, verbs...)),
				resourceList("g.io/v1", resource("zones", "Zone", false, verbs...),
					resource("apps", "App", true, verbs...), resource("endpoints", "Endpoints", true, verbs...)))
			lists := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "configmaps"}: "ConfigMapList",
				{Version: "v1", Resource: "endpoints"}:                "EndpointsList",
				{Group: "g.io", Version: "v1", Resource: "zones"}:     "ZoneList",
				{Group: "g.io", Version: "v1", Resource: "apps"}:      "AppList",
				{Group: "g.io", Version: "v1", Resource: "endpoints"}: "EndpointsList"}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, tc.object,
				newObject("g.io/v1", "Zone", "", "there"),
				newObject("g.io/v1", "Zone", "", "going", setDeletionTimestamp))
			a := &executor{target: &Target{Discovery: d}, client: &Client{Interface: client},
				owner: &ReadOnlyOwner{Entries: plan.NewInventory(&appsv1.Inventory{}, nil)}}
			got, err := a.findForeignObject(t.Context(), "ns")
			if err != nil || (got != "") != tc.foreign ||
				(tc.foreign && !strings.Contains(got, tc.object.GetName()+" is in the namespace")) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A kind that is not served counts as deleted only when all groups answer. The server is asked
// once, independent of the number of objects with owners of the kind.
func TestForeignObjectsWithOwnersOfAnUnservedKind(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*apiServer)
		foreign bool
		asks    int
		fails   bool
	}{
		"deleted": {func(*apiServer) {}, false, 1, false},
		"a group does not answer": {func(s *apiServer) {
			s.failed = map[schema.GroupVersion]error{{Group: "i.io", Version: "v1"}: errors.New("down")}
		}, true, 1, false},
		"discovery fails": {func(s *apiServer) { s.down = errors.New("down") }, true, 1, true},
		"served in the meantime": {func(s *apiServer) {
			s.lists = append(s.lists, resourceList("h.io/v1", resource("xs", "X", true, "get")))
		}, true, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			verbs := []string{"get", "list", "delete"}
			s, d := newAPIServer(resourceList("v1", resource("configmaps", "ConfigMap", true, verbs...)))
			gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{gvr: "ConfigMapList"})
			for i := range 100 {
				owner := metav1.OwnerReference{APIVersion: "h.io/v1", Kind: "X", Name: "x",
					UID: types.UID(fmt.Sprint(i))}
				if err := client.Tracker().
					Create(gvr, newObject("v1", "ConfigMap", "ns", fmt.Sprint("x", i), ownedBy(owner)),
						"ns"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.NamespacedResources(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := s.requests
			tc.change(s)
			a := &executor{target: &Target{Discovery: d}, client: &Client{Interface: client},
				owner: &ReadOnlyOwner{Entries: plan.NewInventory(&appsv1.Inventory{}, nil)}}
			got, err := a.findForeignObject(t.Context(), "ns")
			if (err != nil) != tc.fails || (got != "") != tc.foreign || s.requests-before != tc.asks {
				t.Errorf("got %q, %v, %d requests", got, err, s.requests-before)
			}
		})
	}
}
