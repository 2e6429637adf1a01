package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/e2e/harness"
)

const (
	floorUser       = "bench-floor"
	floorFieldOwner = client.FieldOwner("bench-floor")
	// floorConcurrency is the number of installs that the floor processes concurrently, not
	// counting installs that wait for readiness.
	floorConcurrency = 20
)

// floor is the minimal installer: it writes a finalizer, the intended inventory, the objects, and
// the Ready status when they are ready. It does not watch, render or plan; the benchmark calls it
// directly.
type floor struct {
	ksctlPeer
	client          client.Client
	deploymentWatch *objectWatch
}

func (f *floor) prepare(ctx context.Context, w *testbed) error {
	f.testbed = w
	config, err := w.ControlPlane.ConfigForUser(floorUser, "system:masters")
	if err != nil {
		return err
	}
	if f.client, err = client.New(config,
		client.Options{Scheme: w.ControlPlane.Client().Scheme(), Mapper: w.ControlPlane.Client().
			RESTMapper()}); err != nil {
		return err
	}
	f.deploymentWatch, err = newObjectWatch(ctx, config,
		schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, objectLabel)
	return err
}

func (*floor) start(context.Context) error { return nil }

func (f *floor) stop() error {
	if f.deploymentWatch != nil {
		f.deploymentWatch.stop()
	}
	return nil
}

func (*floor) user() string                  { return floorUser }
func (*floor) processes() []*harness.Process { return nil }
func (*floor) pprofAddress() string          { return "" }

// objects returns the objects of a folder, each after the objects that it needs.
func (c content) objects(namespace string) ([]*unstructured.Unstructured, error) {
	files := c.manifests()
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for document := range bytes.SplitSeq([]byte(files[name]), []byte("---\n")) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &u.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(u.Object) > 0 {
				u.SetNamespace(namespace)
				out = append(out, u)
			}
		}
	}
	return out, nil
}

// onCreated performs the first install.
func (f *floor) onCreated(ctx context.Context, specs []installSpec) error {
	objects, ready := map[installSpec][]*unstructured.Unstructured{}, map[installSpec]*expectation{}
	for _, s := range specs {
		o, err := f.testbed.source[s.Folder].objects(s.Namespace)
		if err != nil {
			return err
		}
		objects[s], ready[s] = o, f.expectAvailable(o)
	}
	slots := make(chan struct{}, floorConcurrency)
	return forEach(ctx, -1, specs, func(ctx context.Context, s installSpec) error {
		slots <- struct{}{}
		err := f.startInstall(ctx, s, objects[s])
		<-slots
		if err != nil {
			return err
		}
		if _, err := f.deploymentWatch.await(ctx, ready[s]); err != nil {
			return err
		}
		slots <- struct{}{}
		defer func() { <-slots }()
		if err := f.writeInventories(ctx, s, objects[s], appsv1.EntryApplied); err != nil {
			return err
		}
		return f.writeReady(ctx, s, objects[s])
	})
}

// expectAvailable registers an expectation that the Deployments among the objects are available.
func (f *floor) expectAvailable(objects []*unstructured.Unstructured) *expectation {
	var keys []types.NamespacedName
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
	}
	w := f.deploymentWatch.expect(keys, deploymentAvailable)
	if len(keys) == 0 {
		close(w.done)
	}
	return w
}

// deploymentAvailable matches Deployments whose rollout is complete.
func deploymentAvailable(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	status, _ := condition(o, "Available")
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	updated, _, _ := unstructured.NestedInt64(o.Object, "status", "updatedReplicas")
	return status == "True" && observed == o.GetGeneration() && updated == 1
}

func (f *floor) startInstall(ctx context.Context, s installSpec, objects []*unstructured.Unstructured) error {
	finalizer := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, appsv1.Finalizer))
	if err := f.client.Patch(ctx, install(s, 0), finalizer, floorFieldOwner); err != nil {
		return err
	}
	if err := f.writeInventories(ctx, s, objects, appsv1.EntryIntended); err != nil {
		return err
	}
	if err := f.writeStatus(ctx, s, objects, appsv1.EntryIntended, nil); err != nil {
		return err
	}
	return f.applyObjects(ctx, objects)
}

// applyObjects applies objects sequentially, or concurrently if there are more than 100.
func (f *floor) applyObjects(ctx context.Context, objects []*unstructured.Unstructured) error {
	limit := 1
	if len(objects) > 100 {
		limit = floorConcurrency
	}
	return forEach(ctx, limit, objects, func(ctx context.Context, o *unstructured.Unstructured) error {
		return f.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), floorFieldOwner,
			client.ForceOwnership)
	})
}

func (f *floor) writeReady(ctx context.Context, s installSpec, objects []*unstructured.Unstructured) error {
	return f.writeStatus(ctx, s, objects, appsv1.EntryApplied, []metav1.Condition{{Type: "Ready",
		Status: metav1.ConditionTrue,
		Reason: "Succeeded", Message: "installed", LastTransitionTime: metav1.Now(), ObservedGeneration: 1}})
}

// writeStatus writes the status of an install in one patch.
func (f *floor) writeStatus(ctx context.Context, s installSpec, objects []*unstructured.Unstructured,
	state appsv1.EntryState, conditions []metav1.Condition) error {
	status := appsv1.KsctlInstallStatus{LastAttemptedRevision: f.testbed.revision, StackVersion: "1.0.0"}
	status.ObservedGeneration, status.Conditions = 1, conditions
	if conditions != nil {
		status.LastAppliedRevision = f.testbed.revision
	}
	if len(objects) <= plan.MaxStatusEntries {
		status.Inventory = &appsv1.Inventory{Entries: inventoryEntries(objects, state)}
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return f.client.Status().Patch(ctx, install(s, 0), client.RawPatch(types.MergePatchType, body), floorFieldOwner)
}

// onCommitted applies the changed objects and then writes the status.
func (f *floor) onCommitted(ctx context.Context, specs []installSpec, from source) error {
	return forEach(ctx, floorConcurrency, specs, func(ctx context.Context, s installSpec) error {
		before, err := from[s.Folder].objects(s.Namespace)
		if err != nil {
			return err
		}
		after, err := f.testbed.source[s.Folder].objects(s.Namespace)
		if err != nil {
			return err
		}
		if err := f.applyObjects(ctx, changedObjects(before, after)); err != nil {
			return err
		}
		return f.writeReady(ctx, s, after)
	})
}

// changedObjects returns the objects that differ from the object at the same index before.
func changedObjects(before, after []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for i, o := range after {
		if i >= len(before) || !reflect.DeepEqual(before[i], o) {
			out = append(out, o)
		}
	}
	return out
}

// onRemoved deletes the objects and removes the finalizer.
func (f *floor) onRemoved(ctx context.Context, specs []installSpec) error {
	return forEach(ctx, floorConcurrency, specs, func(ctx context.Context, s installSpec) error {
		objects, err := f.testbed.source[s.Folder].objects(s.Namespace)
		if err != nil {
			return err
		}
		for _, o := range slices.Backward(objects) {
			if err := f.client.Delete(ctx, o); err != nil {
				return err
			}
		}
		if err := f.writeInventories(ctx, s, objects, ""); err != nil {
			return err
		}
		return f.client.Patch(ctx, install(s, 0),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), floorFieldOwner)
	})
}
