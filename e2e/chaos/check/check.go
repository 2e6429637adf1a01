// Package check compares a cluster with what a chaos run expects in it. It knows the cluster's API
// only, and nothing of the controller's code: it imports no other package of this module.
package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// markAnnotation is on each object that an install manages.
const markAnnotation = "ksctl.com/mark"

// Object is an expected object. Value is that of the field which the run changes, see fields.
type Object struct {
	Kind, Namespace, Name, Value string
}

func (o Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Foreign is an object that the controller must not touch. Content is the digest of its whole
// content.
type Foreign struct {
	Object
	Content string
}

// Expected is the expected content of a cluster.
type Expected struct {
	// Namespaces of the run. Other namespaces are not checked.
	Namespaces []string
	// Installs that have to be Ready, as namespace/name, with the revision that they have to have
	// applied. Others must not exist.
	Installs map[string]string
	Objects  []Object
	Foreign  []Foreign
	// Everything has the names of all objects of all kinds, as Names returned them before the
	// installs were created. If it is not empty, there must be no others now, apart from Foreign.
	Everything []string
}

// fields has the checked kinds with the field that has the value of an object.
var fields = map[schema.GroupVersionKind][]string{
	{Version: "v1", Kind: "ConfigMap"}:                                       {"data", "value"},
	{Version: "v1", Kind: "Service"}:                                         {"spec", "selector", "value"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}:        {"metadata", "annotations", "value"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}: {"metadata", "annotations", "value"},
}

// Cluster returns the differences between a cluster and what is expected, sorted: lost and changed
// objects, orphans, touched foreign objects, and installs that are not Ready.
func Cluster(ctx context.Context, c client.Client, want Expected) ([]string, error) {
	var out []string
	expected := map[string]string{}
	for _, o := range want.Objects {
		expected[o.String()] = o.Value
	}
	foreign := map[string]string{}
	for _, o := range want.Foreign {
		foreign[o.String()] = o.Content
	}
	for gvk, path := range fields {
		list, err := objects(ctx, c, gvk, want.Namespaces)
		if err != nil {
			return nil, err
		}
		for i := range list {
			u := &list[i]
			o := Object{Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
			value, _, _ := unstructured.NestedString(u.Object, path...)
			content, isForeign := foreign[o.String()]
			wanted, isExpected := expected[o.String()]
			delete(foreign, o.String())
			delete(expected, o.String())
			switch {
			case isForeign && Content(u) != content:
				out = append(out, "touched foreign object: "+o.String())
			case isForeign:
			case isExpected && value != wanted:
				out = append(out, fmt.Sprintf("changed object: %s has %q instead of %q", o, value, wanted))
			case !isExpected && u.GetAnnotations()[markAnnotation] != "":
				out = append(out, "orphan: "+o.String())
			}
		}
	}
	for name := range expected {
		out = append(out, "lost object: "+name)
	}
	for name := range foreign {
		out = append(out, "lost foreign object: "+name)
	}
	installs, err := Installs(ctx, c, want)
	slices.Sort(out)
	return append(out, installs...), err
}

// volatile are kinds whose objects come and go by themselves.
var volatile = map[string]bool{"Event": true, "Lease": true, "EndpointSlice": true, "Endpoints": true}

// controllerNamespace has the Lease of the controller, and the key of its hashes.
const controllerNamespace = "ksctl-gitops-system"

// Kinds returns the kinds that the API server lists, apart from those whose objects come and go by
// themselves.
func Kinds(d discovery.DiscoveryInterface) ([]schema.GroupVersionKind, error) {
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discovering kinds: %w", err)
	}
	var out []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; slices.Contains(r.Verbs, "list") && !volatile[r.Kind] {
				out = append(out, gv.WithKind(r.Kind))
			}
		}
	}
	return out, nil
}

// Names returns the group, kind, namespace and name of all objects of the kinds, sorted.
func Names(ctx context.Context, c client.Client, kinds []schema.GroupVersionKind) ([]string, error) {
	var out []string
	for _, gvk := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.Namespace == controllerNamespace || gvk.Kind == "ConfigMap" && o.Name == "kube-root-ca.crt" {
				continue // the latter comes some time after its namespace
			}
			out = append(out, Object{Kind: gvk.GroupKind().String(), Namespace: o.Namespace, Name: o.Name}.String())
		}
	}
	slices.Sort(out)
	return out, nil
}

// Rest returns the objects of all kinds that were not there before and are not foreign, and those
// that are no longer there.
func Rest(ctx context.Context, c client.Client, kinds []schema.GroupVersionKind, want Expected) ([]string, error) {
	now, err := Names(ctx, c, kinds)
	if err != nil {
		return nil, err
	}
	before := map[string]bool{}
	for _, name := range want.Everything {
		before[name] = true
	}
	for _, o := range want.Foreign {
		before[o.String()] = true
	}
	var out []string
	for _, name := range now {
		if !before[name] {
			out = append(out, "object that was not there before: "+name)
		}
		delete(before, name)
	}
	for name := range before {
		out = append(out, "object that was there before: "+name)
	}
	slices.Sort(out)
	return out, nil
}

// objects lists the objects of a kind in the namespaces, and the cluster-scoped ones.
func objects(ctx context.Context, c client.Client, gvk schema.GroupVersionKind,
	namespaces []string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
	}
	return slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		return u.GetNamespace() != "" && !slices.Contains(namespaces, u.GetNamespace())
	}), nil
}

// Installs returns the installs that are not Ready with the expected revision, and the ones that
// are not expected.
func Installs(ctx context.Context, c client.Client, want Expected) ([]string, error) {
	list, err := objects(ctx, c, schema.GroupVersionKind{Group: "apps.ksctl.com", Version: "v1", Kind: "KsctlInstall"},
		want.Namespaces)
	if err != nil {
		return nil, err
	}
	var out []string
	left := map[string]string{}
	for name, revision := range want.Installs {
		left[name] = revision
	}
	for i := range list {
		u := &list[i]
		name := u.GetNamespace() + "/" + u.GetName()
		revision, expected := left[name]
		delete(left, name)
		if !expected {
			out = append(out, "install "+name+" exists")
			continue
		}
		if why := notReady(u, revision); why != "" {
			out = append(out, "install "+name+" is not ready: "+why)
		}
	}
	for name := range left {
		out = append(out, "install "+name+" does not exist")
	}
	slices.Sort(out)
	return out, nil
}

// notReady returns why an install is not Ready with a revision; empty if it is.
func notReady(u *unstructured.Unstructured, revision string) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != "Ready" {
			continue
		}
		observed, _, _ := unstructured.NestedInt64(condition, "observedGeneration")
		applied, _, _ := unstructured.NestedString(u.Object, "status", "lastAppliedRevision")
		switch {
		case condition["status"] != "True" || observed != u.GetGeneration():
			return fmt.Sprintf("Ready is %v/%v: %v", condition["status"], condition["reason"], condition["message"])
		case !strings.HasSuffix(applied, revision):
			return fmt.Sprintf("it has revision %s instead of %s", applied, revision)
		}
		return ""
	}
	return "it has no Ready condition"
}

// Content returns the digest of everything in an object that somebody writes.
func Content(u *unstructured.Unstructured) string {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	b, err := json.Marshal(u.Object)
	if err != nil {
		panic(err) // it was JSON
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
