package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

var (
	plane *cluster.Cluster
	admin dynamic.Interface
)

func TestLive(t *testing.T) {
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	suite.Run(t, "Live")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	// The controller manager makes ReplicaSets and EndpointSlices, which copy our metadata.
	plane, err = cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true,
		// Fast compaction, so that watches expire.
		APIServerFlags: []string{"--etcd-compaction-interval=500ms"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	admin, err = dynamic.NewForConfig(fast(plane.Config()))
	Expect(err).NotTo(HaveOccurred())
})

func fast(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

func mapping(apiVersion, kind, resource string, scope meta.RESTScope) *meta.RESTMapping {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	return &meta.RESTMapping{Resource: gvk.GroupVersion().WithResource(resource), GroupVersionKind: gvk, Scope: scope}
}

var (
	configMaps  = mapping("v1", "ConfigMap", "configmaps", meta.RESTScopeNamespace)
	secrets     = mapping("v1", "Secret", "secrets", meta.RESTScopeNamespace)
	services    = mapping("v1", "Service", "services", meta.RESTScopeNamespace)
	deployments = mapping("apps/v1", "Deployment", "deployments", meta.RESTScopeNamespace)
	replicaSets = mapping("apps/v1", "ReplicaSet", "replicasets", meta.RESTScopeNamespace)
	roles       = mapping("rbac.authorization.k8s.io/v1", "Role", "roles", meta.RESTScopeNamespace)
)

func resource(m *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return admin.Resource(m.Resource)
	}
	return admin.Resource(m.Resource).Namespace(namespace)
}

func parse(text string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &u.Object)).To(Succeed(), text)
	return u
}

func refOf(u *unstructured.Unstructured) stacks.Ref {
	gvk := u.GroupVersionKind()
	return stacks.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// installation returns a separate installation id for each spec.
func installation(namespace string) string { return "test-" + namespace }

func ownerKey(namespace string) string {
	return installation(namespace) + "/local/KsctlInstall/" + namespace + "/demo"
}

// marked returns a copy of an object with a namespace, our label and our mark.
func marked(namespace string, u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetNamespace(namespace)
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[live.OwnerLabel] = installation(namespace)
	annotations[live.MarkAnnotation] = live.Mark{Owner: ownerKey(namespace), ID: refOf(u).ID()}.String()
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	return u
}

// apply applies an object in the same way as the engine.
func apply(ctx context.Context, m *meta.RESTMapping, u *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	return applyAs(ctx, live.FieldManager, m, u)
}

func applyAs(ctx context.Context, manager string, m *meta.RESTMapping,
	u *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	out, err := resource(m, u.GetNamespace()).
		Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	Expect(err).NotTo(HaveOccurred())
	return out
}

// patch patches an object as a user with kubectl does: a list is a JSON patch, a map a merge patch.
func patch(ctx context.Context, m *meta.RESTMapping, namespace, name, text string,
	subresource ...string) *unstructured.Unstructured {
	GinkgoHelper()
	var content any
	Expect(yaml.Unmarshal([]byte(text), &content)).To(Succeed(), text)
	kind := types.MergePatchType
	if _, ok := content.([]any); ok {
		kind = types.JSONPatchType
	}
	b, err := json.Marshal(content)
	Expect(err).NotTo(HaveOccurred())
	out, err := resource(m, namespace).Patch(ctx, name, kind, b, metav1.PatchOptions{FieldManager: "kubectl-edit"},
		subresource...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func configMap(name, value string) *unstructured.Unstructured {
	GinkgoHelper()
	return parse(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {key: %q}}", name, value))
}

// recorder counts notifications by owner.
type recorder struct {
	mu    sync.Mutex
	calls map[string]int
}

func (r *recorder) notify(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[string]int{}
	}
	r.calls[owner]++
}

func (r *recorder) count(owner string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[owner]
}

func (r *recorder) owners() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for o := range r.calls {
		out = append(out, o)
	}
	return strings.Join(out, " ")
}

// startIndex starts an index, which ends with the spec.
func startIndex(cfg *rest.Config, o live.Options) (*live.Index, *recorder) {
	GinkgoHelper()
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 300 * time.Millisecond
	}
	ix, err := live.New(cfg, o)
	Expect(err).NotTo(HaveOccurred())
	rec := &recorder{}
	ix.Subscribe(rec.notify)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ix.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "Start returns after its context ends")
	})
	return ix, rec
}

func expectSynced(ix *live.Index, kinds ...*meta.RESTMapping) {
	GinkgoHelper()
	for _, m := range kinds {
		Eventually(func() error {
			return ix.Synced(m.GroupVersionKind.GroupKind())
		}).Should(Succeed(), "%s is synced", m.Resource)
	}
}

// getObject returns a function that gets an object from an index, for Eventually.
func getObject(ix *live.Index, ref stacks.Ref) func() live.Object {
	return func() live.Object { o, _ := ix.Get(ref); return o }
}

func has(ix *live.Index, ref stacks.Ref) func() bool {
	return func() bool { _, ok := ix.Get(ref); return ok }
}

// reason returns a function that returns why a kind is not synced; "" if it is.
func reason(ix *live.Index, m *meta.RESTMapping) func() live.SyncReason {
	return func() live.SyncReason {
		err := ix.Synced(m.GroupVersionKind.GroupKind())
		if err == nil {
			return ""
		}
		var se *live.SyncError
		if !errors.As(err, &se) {
			return live.SyncReason(err.Error())
		}
		return se.Reason
	}
}
