package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/e2e/harness"
)

const (
	floorUser  = "bench-floor"
	floorOwner = client.FieldOwner("bench-floor")
	// floorParallel is how many installs the floor works on at a time. Those
	// that wait for readiness do not count.
	floorParallel = 20
)

// floor sends what any installer must and nothing else: a finalizer, an intent,
// the objects, and an outcome when they are ready. It has no watch of the
// source, no render, no plan, and takes its orders by call.
type floor struct {
	toolkit
	client      client.Client
	deployments *board
}

func (f *floor) prepare(ctx context.Context, w *world) error {
	f.world = w
	config, err := w.Plane.ConfigForUser(floorUser, "system:masters")
	if err != nil {
		return err
	}
	if f.client, err = client.New(config, client.Options{Scheme: w.Plane.Client().Scheme(), Mapper: w.Plane.Client().RESTMapper()}); err != nil {
		return err
	}
	f.deployments, err = newBoard(ctx, config, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, marked)
	return err
}

func (*floor) start(context.Context) error { return nil }

func (f *floor) stop() error {
	if f.deployments != nil {
		f.deployments.stop()
	}
	return nil
}

func (*floor) user() string                                      { return floorUser }
func (*floor) resource() schema.GroupVersionResource             { return installs }
func (*floor) wish(s site, interval time.Duration) client.Object { return install(s, interval) }
func (*floor) processes() []*harness.Process                     { return nil }
func (*floor) profiles() string                                  { return "" }

// objects of a folder, in an order in which they can be sent.
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

// created does a first install.
func (f *floor) created(ctx context.Context, sites []site) error {
	objects, ready := map[site][]*unstructured.Unstructured{}, map[site]*wait{}
	for _, s := range sites {
		o, err := f.world.source[s.Folder].objects(s.Namespace)
		if err != nil {
			return err
		}
		objects[s], ready[s] = o, f.expect(o)
	}
	slots := make(chan struct{}, floorParallel)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range sites {
		g.Go(func() error {
			slots <- struct{}{}
			err := f.begin(ctx, s, objects[s])
			<-slots
			if err != nil {
				return err
			}
			if _, err := f.deployments.await(ctx, ready[s]); err != nil {
				return err
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.chunks(ctx, s, objects[s], appsv1.EntryApplied); err != nil {
				return err
			}
			return f.outcome(ctx, s, objects[s])
		})
	}
	return g.Wait()
}

// expect waits for the Deployments among the objects.
func (f *floor) expect(objects []*unstructured.Unstructured) *wait {
	var keys []types.NamespacedName
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
	}
	w := f.deployments.expect(keys, available)
	if len(keys) == 0 {
		close(w.done)
	}
	return w
}

// available is met by Deployments that are rolled out.
func available(_ types.NamespacedName, o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	status, _ := condition(o, "Available")
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	updated, _, _ := unstructured.NestedInt64(o.Object, "status", "updatedReplicas")
	return status == "True" && observed == o.GetGeneration() && updated == 1
}

func (f *floor) begin(ctx context.Context, s site, objects []*unstructured.Unstructured) error {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	finalizer := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, appsv1.Finalizer))
	if err := f.client.Patch(ctx, in, finalizer, floorOwner); err != nil {
		return err
	}
	if err := f.chunks(ctx, s, objects, appsv1.EntryIntended); err != nil {
		return err
	}
	if err := f.status(ctx, s, objects, appsv1.EntryIntended, nil); err != nil {
		return err
	}
	return f.send(ctx, objects)
}

// send applies objects one after the other, or many of them some at a time.
func (f *floor) send(ctx context.Context, objects []*unstructured.Unstructured) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(1)
	if len(objects) > 100 {
		g.SetLimit(floorParallel)
	}
	for _, o := range objects {
		g.Go(func() error {
			return f.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), floorOwner, client.ForceOwnership)
		})
	}
	return g.Wait()
}

func (f *floor) outcome(ctx context.Context, s site, objects []*unstructured.Unstructured) error {
	return f.status(ctx, s, objects, appsv1.EntryApplied, []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue,
		Reason: "Succeeded", Message: "installed", LastTransitionTime: metav1.Now(), ObservedGeneration: 1}})
}

// status writes the status of an install in one patch.
func (f *floor) status(ctx context.Context, s site, objects []*unstructured.Unstructured, state appsv1.EntryState, conditions []metav1.Condition) error {
	status := appsv1.KsctlInstallStatus{LastAttemptedRevision: f.world.revision, StackVersion: "1.0.0"}
	status.ObservedGeneration, status.Conditions = 1, conditions
	if conditions != nil {
		status.LastAppliedRevision = f.world.revision
	}
	if len(objects) <= engine.MaxStatusEntries {
		status.Inventory = &appsv1.Inventory{Entries: entries(objects, state)}
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	return f.client.Status().Patch(ctx, in, client.RawPatch(types.MergePatchType, body), floorOwner)
}

// committed sends what changed, and then says so.
func (f *floor) committed(ctx context.Context, sites []site, from source) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(floorParallel)
	for _, s := range sites {
		g.Go(func() error {
			before, err := from[s.Folder].objects(s.Namespace)
			if err != nil {
				return err
			}
			after, err := f.world.source[s.Folder].objects(s.Namespace)
			if err != nil {
				return err
			}
			if err := f.send(ctx, different(before, after)); err != nil {
				return err
			}
			return f.outcome(ctx, s, after)
		})
	}
	return g.Wait()
}

// different are the objects that are not the same as before, place by place.
func different(before, after []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for i, o := range after {
		a, _ := json.Marshal(o)
		if i < len(before) {
			if b, _ := json.Marshal(before[i]); bytes.Equal(a, b) {
				continue
			}
		}
		out = append(out, o)
	}
	return out
}

// removed deletes what was installed and lets go.
func (f *floor) removed(ctx context.Context, sites []site) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(floorParallel)
	for _, s := range sites {
		g.Go(func() error {
			objects, err := f.world.source[s.Folder].objects(s.Namespace)
			if err != nil {
				return err
			}
			for _, o := range slices.Backward(objects) {
				if err := f.client.Delete(ctx, o); err != nil {
					return err
				}
			}
			if err := f.chunks(ctx, s, objects, ""); err != nil {
				return err
			}
			in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
			return f.client.Patch(ctx, in, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), floorOwner)
		})
	}
	return g.Wait()
}
