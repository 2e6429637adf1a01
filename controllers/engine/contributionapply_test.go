package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// contributionTest has the ConfigMap of somebody, and the field managers of a real API server.
type contributionTest struct {
	*testing.T
	tracker clienttesting.ObjectTracker
	*executor
	owner *contributingOwner
	entry appsv1.InventoryEntry
}

// contributingOwner contributes a manifest.
type contributingOwner struct {
	emptyOwner
	manifest string
}

func (o *contributingOwner) Manifest(context.Context, *plan.Item) (json.RawMessage, error) {
	return json.RawMessage(o.manifest), nil
}

var configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func newContributionTest(t *testing.T) *contributionTest {
	scheme := clientgoscheme.Scheme
	tracker := clienttesting.NewFieldManagedObjectTracker(scheme, clientgoscheme.Codecs.UniversalDecoder(),
		managedfields.NewDeducedTypeConverter())
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"},
		Data: map[string]string{"own": "theirs"}}
	if err := tracker.Create(configMapResource, cm, "ns", metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	client, react := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), clienttesting.ObjectReaction(tracker)
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, typed, err := react(action)
		if err != nil {
			return true, nil, err
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		return true, u, err
	})
	index, err := live.New(&rest.Config{Host: "127.0.0.1:1"}, live.Options{OwnerID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	owner := &contributingOwner{}
	return &contributionTest{T: t, tracker: tracker, owner: owner, entry: entry("a", appsv1.EntryContributed),
		executor: New(Options{}).newExecutor(Pass{Owner: owner, Target: &Target{Index: index},
			Client: &Client{Interface: client}})}
}

func configMapItem(component string) *plan.Item {
	it := item(component, "a")
	it.Mapping = &meta.RESTMapping{Resource: configMapResource, Scope: meta.RESTScopeNamespace,
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	it.Contribute = true
	return &it
}

// contributes contributes data, and returns the error.
func (c *contributionTest) contributes(component, data string) error {
	c.owner.manifest = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a"},"data":` + data + `}`
	r := c.contribute(c.Context(), &plan.Action{Verb: plan.VerbUpdate, Item: configMapItem(component), Entry: c.entry})
	if r.fatal != nil || r.replan {
		c.Fatalf("result %+v", r)
	}
	if r.entry != nil {
		c.entry = *r.entry
	}
	return r.err
}

// expect checks the data of the ConfigMap and its contributions.
func (c *contributionTest) expect(data map[string]string, contributions int) *corev1.ConfigMap {
	c.Helper()
	object, err := c.tracker.Get(configMapResource, "ns", "a")
	if err != nil {
		c.Fatal(err)
	}
	cm := object.(*corev1.ConfigMap)
	if !maps.Equal(cm.Data, data) {
		c.Errorf("data %v, want %v", cm.Data, data)
	}
	if n := len(slices.DeleteFunc(slices.Clone(cm.ManagedFields), func(e metav1.ManagedFieldsEntry) bool {
		return !live.IsContributionManager(e.Manager)
	})); n != contributions {
		c.Errorf("%d contributions, want %d", n, contributions)
	}
	return cm
}

// set changes a key as another manager.
func (c *contributionTest) set(manager, key, value string) {
	c.Helper()
	object, err := c.tracker.Get(configMapResource, "ns", "a")
	if err != nil {
		c.Fatal(err)
	}
	cm := object.(*corev1.ConfigMap).DeepCopy()
	cm.Data[key] = value
	if err := c.tracker.Update(configMapResource, cm, "ns", metav1.UpdateOptions{FieldManager: manager}); err != nil {
		c.Fatal(err)
	}
}

func TestContribute(t *testing.T) {
	c := newContributionTest(t)
	if err := c.contributes("c", `{"k":"ours","l":"ours"}`); err != nil {
		t.Fatal(err)
	}
	cm := c.expect(map[string]string{"own": "theirs", "k": "ours", "l": "ours"}, 1)
	if len(cm.Labels)+len(cm.Annotations) > 0 || c.entry.UID != "uid" ||
		c.entry.Baseline != live.ContributedFields(cm, plan.ContributionManager(me, "c")) {
		t.Errorf("object %+v, entry %+v", cm, c.entry)
	}

	c.set("kubectl-edit", "k", "edited")
	if now := c.expect(map[string]string{"own": "theirs", "k": "edited", "l": "ours"}, 1); live.ContributedFields(now,
		plan.ContributionManager(me, "c")) == c.entry.Baseline {
		t.Error("the managers of the object do not show the change")
	}
	if err := c.contributes("c", `{"k":"new"}`); err != nil {
		t.Error(err)
	}
	c.expect(map[string]string{"own": "theirs", "k": "new"}, 1)

	if err := c.contributes("other", `{"k":"moved"}`); err != nil {
		t.Error(err)
	}
	c.expect(map[string]string{"own": "theirs", "k": "moved"}, 1)

	err := c.contributes("other", `{"k":"moved","own":"ours"}`)
	owned, ok := errors.AsType[*plan.OwnedByOtherError](err)
	if !ok || owned.By != "somebody" || !slices.Equal(owned.Fields, []string{".data.own"}) {
		t.Errorf("error %v", err)
	}
	if c.engine.refused.get(me.String(), c.entry.ID).uid != "uid" {
		t.Error("the refusal is not recorded")
	}
	c.expect(map[string]string{"own": "theirs", "k": "moved"}, 1)

	r := c.withdraw(t.Context(), &plan.Action{Verb: plan.VerbWithdraw, Entry: c.entry}, ref("a"),
		configMapItem("other").Mapping)
	if r.err != nil || !r.dropEntry {
		t.Errorf("result %+v", r)
	}
	c.expect(map[string]string{"own": "theirs"}, 0)
}

// A field that somebody has taken since stays.
func TestWithdrawLeavesFieldsOfOthers(t *testing.T) {
	c := newContributionTest(t)
	if err := c.contributes("c", `{"k":"ours","l":"ours"}`); err != nil {
		t.Fatal(err)
	}
	c.set("kubectl-edit", "k", "edited")
	if r := c.withdraw(t.Context(), &plan.Action{Verb: plan.VerbWithdraw, Entry: c.entry}, ref("a"),
		configMapItem("c").Mapping); r.err != nil || !r.dropEntry {
		t.Errorf("result %+v", r)
	}
	c.expect(map[string]string{"own": "theirs", "k": "edited"}, 0)
}

// A contribution never creates an object, and one to an object that is gone is withdrawn.
func TestContributeToMissingObject(t *testing.T) {
	c := newContributionTest(t)
	if err := c.tracker.Delete(configMapResource, "ns", "a"); err != nil {
		t.Fatal(err)
	}
	act := &plan.Action{Verb: plan.VerbUpdate, Item: configMapItem("c"), Entry: c.entry}
	if r := c.contribute(t.Context(), act); !r.replan || r.err != nil {
		t.Errorf("result %+v", r)
	}
	if _, err := c.tracker.Get(configMapResource, "ns", "a"); err == nil {
		t.Error("the object was created")
	}
	if r := c.withdraw(t.Context(), act, ref("a"), act.Item.Mapping); r.err != nil || !r.dropEntry {
		t.Errorf("result %+v", r)
	}
}
