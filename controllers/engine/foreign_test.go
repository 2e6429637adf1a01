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
)

func thing(apiVersion, kind, namespace, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
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

func going(u *unstructured.Unstructured) {
	now := metav1.Now()
	u.SetDeletionTimestamp(&now)
}

func TestWhatIsForeignInANamespace(t *testing.T) {
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
	controllers := func(u *unstructured.Unstructured) {
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager"}})
	}
	labelled := func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"})
	}
	for name, tc := range map[string]struct {
		object  *unstructured.Unstructured
		foreign bool
	}{
		"somebody's":                         {thing("v1", "ConfigMap", "ns", "x"), true},
		"one that goes":                      {thing("v1", "ConfigMap", "ns", "x", going), false},
		"what each namespace has":            {thing("v1", "ConfigMap", "ns", "kube-root-ca.crt"), false},
		"owned by one of the namespace":      {thing("v1", "ConfigMap", "ns", "x", ownedBy(app)), false},
		"owned by one that lives on":         {thing("v1", "ConfigMap", "ns", "x", ownedBy(zone("there"))), true},
		"by that, too":                       {thing("v1", "ConfigMap", "ns", "x", ownedBy(app, zone("there"))), true},
		"owned by one that is gone":          {thing("v1", "ConfigMap", "ns", "x", ownedBy(zone("gone"))), false},
		"owned by one that goes":             {thing("v1", "ConfigMap", "ns", "x", ownedBy(zone("going"))), false},
		"owned by one that was made anew":    {thing("v1", "ConfigMap", "ns", "x", ownedBy(another)), false},
		"owned by a kind that is gone":       {thing("v1", "ConfigMap", "ns", "x", ownedBy(of("h.io/v1", "X"))), false},
		"by one that lives on, too":          {thing("v1", "ConfigMap", "ns", "x", ownedBy(of("h.io/v1", "X"), zone("there"))), true},
		"served in another version":          {thing("v1", "ConfigMap", "ns", "x", ownedBy(of("g.io/v2", "Zone"))), true},
		"a built-in kind that never was":     {thing("v1", "ConfigMap", "ns", "x", ownedBy(of("batch/v1", "X"))), true},
		"what a Service leaves for a moment": {thing("v1", "Endpoints", "ns", "x", labelled), false},
		"the same before 1.33":               {thing("v1", "Endpoints", "ns", "x", controllers), false},
		"Endpoints that a person made":       {thing("v1", "Endpoints", "ns", "x"), true},
		"another kind of that name":          {thing("g.io/v1", "Endpoints", "ns", "x", labelled), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := newAPIServer(serves("v1", resource("configmaps", "ConfigMap", true, verbs...), resource("endpoints", "Endpoints", true, verbs...)),
				serves("g.io/v1", resource("zones", "Zone", false, verbs...), resource("apps", "App", true, verbs...), resource("endpoints", "Endpoints", true, verbs...)))
			lists := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "configmaps"}: "ConfigMapList", {Version: "v1", Resource: "endpoints"}: "EndpointsList",
				{Group: "g.io", Version: "v1", Resource: "zones"}: "ZoneList", {Group: "g.io", Version: "v1", Resource: "apps"}: "AppList", {Group: "g.io", Version: "v1", Resource: "endpoints"}: "EndpointsList"}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, tc.object,
				thing("g.io/v1", "Zone", "", "there"), thing("g.io/v1", "Zone", "", "going", going))
			a := &actor{target: &Target{Discovery: d}, client: &Client{Interface: client}, owner: &View{Entries: NewInventory(&appsv1.Inventory{}, nil)}}
			got, err := a.foreign(t.Context(), "ns")
			if err != nil || (got != "") != tc.foreign || (tc.foreign && !strings.Contains(got, tc.object.GetName()+" is in it")) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A kind that is not served is gone only when the server answers for all: then it
// is asked once, however many objects had owners of it.
func TestOwnersOfAKindThatIsNotServed(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*apiServer)
		foreign bool
		asks    int
		fails   bool
	}{
		"gone": {func(*apiServer) {}, false, 1, false},
		"a group does not answer": {func(s *apiServer) {
			s.failed = map[schema.GroupVersion]error{{Group: "i.io", Version: "v1"}: errors.New("down")}
		}, true, 1, false},
		"nobody answers":          {func(s *apiServer) { s.down = errors.New("down") }, true, 1, true},
		"it came in the meantime": {func(s *apiServer) { s.lists = append(s.lists, serves("h.io/v1", resource("xs", "X", true, "get"))) }, true, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			verbs := []string{"get", "list", "delete"}
			s, d := newAPIServer(serves("v1", resource("configmaps", "ConfigMap", true, verbs...)))
			gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "ConfigMapList"})
			for i := range 100 {
				owner := metav1.OwnerReference{APIVersion: "h.io/v1", Kind: "X", Name: "x", UID: types.UID(fmt.Sprint(i))}
				if err := client.Tracker().Create(gvr, thing("v1", "ConfigMap", "ns", fmt.Sprint("x", i), ownedBy(owner)), "ns"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.Namespaced(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := s.asked
			tc.change(s)
			a := &actor{target: &Target{Discovery: d}, client: &Client{Interface: client}, owner: &View{Entries: NewInventory(&appsv1.Inventory{}, nil)}}
			got, err := a.foreign(t.Context(), "ns")
			if (err != nil) != tc.fails || (got != "") != tc.foreign || s.asked-before != tc.asks {
				t.Errorf("got %q, %v, asked %d times", got, err, s.asked-before)
			}
		})
	}
}
