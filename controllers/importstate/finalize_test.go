package importstate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// createdBy returns a KsctlCluster that an ImportState created.
func createdBy(imp, name string, change ...func(*clusterv1.KsctlCluster)) *clusterv1.KsctlCluster {
	c := clusterWithRef(name, imp, "")
	c.Namespace, c.Annotations, c.Finalizers = "team", map[string]string{CreatedByAnnotation: imp}, []string{"x/y"}
	for _, f := range change {
		f(&c)
	}
	return &c
}

// inUse marks a KsctlCluster as deleted, but still in use.
func inUse(c *clusterv1.KsctlCluster) {
	c.DeletionTimestamp = &metav1.Time{Time: start}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.InUseCondition, Status: metav1.ConditionTrue,
		Message: "KsctlInstall team/app"}}
}

// finalize finalizes an ImportState with one state and the given KsctlClusters. It returns the
// names of the deleted objects, and whether the state is still in the store.
func finalize(t *testing.T, existing ...client.Object) (out reconcile.Outcome, deleted []string, inStore bool) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	doc := []byte(document("one", "a"))
	const key = "civo.ha.one.LON1"
	objects := []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team",
		Name: state.StoreConfigMap, ResourceVersion: "1"}, BinaryData: map[string][]byte{key: doc}}}
	for _, o := range existing {
		objects = append(objects, o)
	}
	api := dynamicfake.NewSimpleDynamicClient(scheme, objects...)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "importer"}}
	s := &Steps{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(account).WithObjects(existing...).
		Build(), SecretKey: []byte("key"), Clock: clocktesting.NewFakePassiveClock(start),
		Target: &engine.Target{ClientFor: func(*types.NamespacedName) (*engine.Client, error) {
			return &engine.Client{Interface: api}, nil
		}}}
	obj := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "import"},
		Spec: v1alpha1.ImportStateSpec{ServiceAccountName: "importer", DeletionPolicy: v1alpha1.DeleteState},
		Status: v1alpha1.ImportStateStatus{Store: "team",
			Clusters: []v1alpha1.ImportedCluster{{Key: key, Written: s.hash(doc), Ours: true}}}}
	out = s.Finalize(t.Context(),
		&reconcile.Request[*v1alpha1.ImportState]{Object: obj, Event: func(_, reason, message string) {
			t.Errorf("%s: %s", reason, message)
		}})
	for _, a := range api.Actions() {
		if a, ok := a.(interface{ GetName() string }); ok && a.(interface{ GetVerb() string }).GetVerb() == "delete" {
			deleted = append(deleted, a.GetName())
		}
	}
	slices.Sort(deleted)
	after, err := statestore.Read(t.Context(), api, "team", false)
	if err != nil {
		t.Fatal(err)
	}
	return out, deleted, after.States[key] != nil
}

func TestFinalizeWaitsForCreatedClusters(t *testing.T) {
	out, deleted, inStore := finalize(t, createdBy("import", "used", inUse), createdBy("import", "free"),
		createdBy("other", "theirs"))
	w, ok := out.(reconcile.Waiting)
	if !ok || w.Reason != v1alpha1.InUseReason ||
		!strings.Contains(w.On, ": free; used (in use by KsctlInstall team/app); to keep the imported states, set "+
			"spec.deletionPolicy to Keep") || !w.RequeueAt.Equal(start.Add(reconcile.DefaultRetryInterval)) {
		t.Errorf("got %#v", out)
	}
	if !inStore || !slices.Equal(deleted, []string{"free"}) {
		t.Errorf("state still in the store: %v, deleted: %v", inStore, deleted)
	}
	out, deleted, inStore = finalize(t, createdBy("import", "free"))
	if w, ok := out.(reconcile.Waiting); !ok || w.Reason != appsv1.RemovingReason ||
		!w.RequeueAt.Equal(start.Add(time.Second)) || !inStore || len(deleted) != 1 {
		t.Errorf("unused cluster: got %#v, state still in the store: %v, deleted: %v", out, inStore, deleted)
	}
	taken := createdBy("import", "taken", inUse, func(c *clusterv1.KsctlCluster) { c.Spec.ImportRef = nil })
	out, deleted, inStore = finalize(t, createdBy("other", "theirs", inUse), taken)
	if _, ok := out.(reconcile.Done); !ok || inStore || len(deleted) > 0 {
		t.Errorf("clusters of others: got %#v, state still in the store: %v, deleted: %v", out, inStore, deleted)
	}
}

// Every error that blocks the deletion ends with the hint on how to keep the states.
func TestFinalizeErrorsHintAtKeepPolicy(t *testing.T) {
	api := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "importer"}}
	s := &Steps{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(account).Build(),
		Clock: clocktesting.NewFakePassiveClock(start),
		Target: &engine.Target{ClientFor: func(*types.NamespacedName) (*engine.Client, error) {
			return &engine.Client{Interface: api}, nil
		}}}
	for name, want := range map[string]string{"importer": "forbidden", "nobody": "nobody"} {
		obj := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "import"},
			Status: v1alpha1.ImportStateStatus{Store: "team"},
			Spec:   v1alpha1.ImportStateSpec{ServiceAccountName: name, DeletionPolicy: v1alpha1.DeleteState}}
		out, ok := s.Finalize(t.Context(), &reconcile.Request[*v1alpha1.ImportState]{Object: obj}).(reconcile.Retry)
		if !ok || !strings.Contains(out.Err.Error(), want) || !strings.HasSuffix(out.Err.Error(), keepHint) {
			t.Errorf("%s: got %+v", name, out)
		}
	}
}
