package server

import (
	"bytes"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
	"github.com/ksctl/gitops/stacks/state"
)

const (
	up   = agentpb.ScaleOperation_SCALE_UP
	down = agentpb.ScaleOperation_SCALE_DOWN
)

func (r *agentTest) scale(ctx context.Context, o agentpb.ScaleOperation, desired uint32,
	size string) (*agentpb.ResScale, error) {
	return (&ksctlAgentServer{server: r.Server}).Scale(ctx,
		&agentpb.ReqScale{Operation: o, DesiredNoOfWP: desired, NodeSizeOfWP: size})
}

func TestScale(t *testing.T) {
	quota := &provisioner.Error{Code: "Quota", Class: provisioner.OutOfResources, Message: "no more"}
	for name, c := range map[string]struct {
		operation agentpb.ScaleOperation
		desired   uint32
		size      string
		err       error
		blocked   bool
		code      codes.Code
		did       string
	}{
		"up":              {operation: up, desired: 4, size: "medium", did: "Create 2 4 medium"},
		"down":            {operation: down, desired: 1, size: "medium", did: "Delete 2 1 "},
		"up by zero":      {operation: up, desired: 2, size: "medium"},
		"down by zero":    {operation: down, desired: 2},
		"up to fewer":     {operation: up, desired: 1, size: "medium", code: codes.FailedPrecondition},
		"down to more":    {operation: down, desired: 3, size: "medium", code: codes.FailedPrecondition},
		"up without size": {operation: up, desired: 3, code: codes.InvalidArgument},
		"no capacity": {operation: up, desired: 3, size: "medium", err: quota, code: codes.ResourceExhausted,
			did: "Create 2 3 medium"},
		"pretended create": {operation: up, desired: 3, size: "medium", err: errPretend, code: codes.Internal,
			did: "Create 2 3 medium"},
		"blocked drain": {operation: down, desired: 1, blocked: true, code: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newFakeCloud(2, pod("web", lastNode))
				cl.before = func(_ context.Context, r provisioner.Request) error {
					if r.Operation == provisioner.List {
						return nil
					}
					return c.err
				}
				blocked := map[string]time.Time{}
				if c.blocked {
					blocked["web"] = time.Now().Add(time.Hour)
				}
				fakeEvictions(cl, blocked)
				r := start(t, cl, &memoryStore{})
				res, err := r.scale(t.Context(), c.operation, c.desired, c.size)
				if status.Code(err) != c.code || err == nil && !res.IsUpdated {
					t.Errorf("%v, %v; want %s", res, err, c.code)
				}
				if got := r.requests(); got != c.did {
					t.Errorf("did %q, want %q", got, c.did)
				}
			})
		})
	}
}

func TestRepeatedScaleRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		delayProvisioner(c)
		r := start(t, c, &memoryStore{})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.scale(impatient, up, 3, "medium"); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("call with a deadline: %v", err)
		}
		if _, err := r.scale(t.Context(), up, 4, "medium"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("other parameters: %v", err)
		}
		if res, err := r.scale(t.Context(), up, 3, "medium"); err != nil || !res.IsUpdated {
			t.Errorf("same parameters: %v, %v", res, err)
		}
		if got := r.requests(); got != "Create 2 3 medium" {
			t.Errorf("did %s", got)
		}
	})
}

func TestScaleStartsAgainAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		c.before = func(_ context.Context, r provisioner.Request) error {
			if r.Operation == provisioner.Create {
				return errPretend
			}
			return nil
		}
		r := start(t, c, &memoryStore{})
		if _, err := r.scale(t.Context(), up, 3, "medium"); status.Code(err) != codes.Internal {
			t.Errorf("%v", err)
		}
		c.before = nil
		time.Sleep(time.Second)
		if res, err := r.scale(t.Context(), up, 3, "medium"); err != nil || !res.IsUpdated {
			t.Errorf("%v, %v", res, err)
		}
	})
}

func TestUnimplementedCalls(t *testing.T) {
	k := &ksctlAgentServer{server: &Server{}}
	_, lb := k.LoadBalancer(t.Context(), nil)
	_, app := k.Application(t.Context(), nil)
	_, export := k.Storage(t.Context(), &agentpb.ReqStore{Operation: agentpb.StorageOperation_EXPORT})
	for what, err := range map[string]error{"LoadBalancer": lb, "Application": app, "export": export} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := k.Storage(t.Context(), &agentpb.ReqStore{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("import without a state store: %v", err)
	}
}

// fixture reads a ksctl export of the tests of stacks/state.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../stacks/state/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newStateStore returns a fake client with objects. They are converted to unstructured ones, where
// binaryData is base64.
func newStateStore(t *testing.T, objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	t.Helper()
	out := make([]runtime.Object, len(objects))
	for i, o := range objects {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = &unstructured.Unstructured{Object: u}
	}
	return dynamicfake.NewSimpleDynamicClient(scheme.Scheme, out...)
}

func configMap(values map[string][]byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl", Name: state.StoreConfigMap, ResourceVersion: "1"},
		BinaryData: values}
}

// storeKeys returns the keys of the state store.
func storeKeys(t *testing.T, c *dynamicfake.FakeDynamicClient) []string {
	t.Helper()
	u, err := c.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("ksctl").
		Get(t.Context(), state.StoreConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	values, _, err := unstructured.NestedMap(u.Object, "binaryData")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(values))
}

func TestImport(t *testing.T) {
	export := fixture(t, "v1_aws_ha_kubeadm.json")
	external := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ksctl", Name: state.ExternalStoreSecret}}
	big := map[string][]byte{"aws.ha.big.LON1": bytes.Repeat([]byte("x"), state.MaxStoreBytes)}
	for name, c := range map[string]struct {
		data    []byte
		objects []runtime.Object
		code    codes.Code
		keys    []string
	}{
		"empty store": {data: export, keys: []string{"aws.ha.demo.us-east-1"}},
		"other keys": {data: export,
			objects: []runtime.Object{configMap(map[string][]byte{"civo.ha.x.LON1": []byte("{}")})},
			keys:    []string{"aws.ha.demo.us-east-1", "civo.ha.x.LON1"}},
		"overwrite": {data: export,
			objects: []runtime.Object{configMap(map[string][]byte{"aws.ha.demo.us-east-1": []byte("{}")})},
			keys:    []string{"aws.ha.demo.us-east-1"}},
		"invalid JSON":   {data: []byte("{"), code: codes.InvalidArgument},
		"no data":        {code: codes.InvalidArgument},
		"not an export":  {data: []byte(`{"cluster_name":"demo"}`), code: codes.InvalidArgument},
		"invalid name":   {data: []byte(`{"Clusters":[{"cluster_name":"Demo"}]}`), code: codes.InvalidArgument},
		"external store": {data: export, objects: []runtime.Object{external}, code: codes.FailedPrecondition},
		"store is full": {data: export, objects: []runtime.Object{configMap(big)}, code: codes.ResourceExhausted,
			keys: []string{"aws.ha.big.LON1"}},
		"null credentials": {data: fixture(t, "v1_local_managed.json"), keys: []string{"local.managed.demo.LOCAL"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := newStateStore(t, c.objects...)
			s := &Server{opts: Options{StatesClient: client, StatesNamespace: "ksctl"}}
			_, err := (&ksctlAgentServer{server: s}).Storage(t.Context(), &agentpb.ReqStore{Data: c.data})
			if status.Code(err) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			if err != nil && strings.Contains(err.Error(), "FAKE") {
				t.Errorf("the error quotes secrets: %v", err)
			}
			if got := storeKeys(t, client); !slices.Equal(got, c.keys) {
				t.Errorf("keys %v, want %v", got, c.keys)
			}
		})
	}
}

func TestImportRetriesConflicts(t *testing.T) {
	client := newStateStore(t, configMap(map[string][]byte{"civo.ha.x.LON1": []byte("{}")}))
	conflicts := 0
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts < 3 {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), state.StoreConfigMap, nil)
		}
		return false, nil, nil
	})
	s := &Server{opts: Options{StatesClient: client, StatesNamespace: "ksctl"}}
	if err := s.importStates(t.Context(), fixture(t, "v1_aws_ha_kubeadm.json")); err != nil || conflicts != 3 {
		t.Errorf("%v after %d conflicts", err, conflicts)
	}
	conflicts = -1000
	if err := s.importStates(t.Context(), fixture(t, "v1_azure_ha_k3s.json")); status.Code(err) != codes.Aborted {
		t.Errorf("%v", err)
	}
}
