package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// goldenOwners are the owners of the golden marks, by test case.
var goldenOwners = map[string]plan.OwnerKey{
	"in another cluster": {Installation: "prod", Cluster: "team.eu", Kind: "KsctlInstall", Namespace: "ns",
		Name: "web"},
	"of a removal": {Installation: "prod", Cluster: "secret:team.eu:config", Kind: "KsctlRemove", Namespace: "ns",
		Name: "web"},
}

// Objects in clusters have the label and the annotations of these patches.
func TestGoldenMarks(t *testing.T) {
	const manifest = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns",` +
		`"labels":{"a":"b"}},"data":{"x":"1"}}`
	cm := item("c", "a")
	whole := cm
	whole.ReadyExpr, whole.Ignore = "object.data.x == '1'", []string{"/data/a~1b", `/x"y`}
	zone := plan.Item{Object: stacks.Object{Ref: stacks.Ref{Group: "h.io", Kind: "Zone", Name: "z"}},
		ID: "_z_h.io_Zone"}
	role := plan.Item{Object: stacks.Object{Ref: stacks.Ref{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole",
		Name: "system:x|y"}}}
	role.ID = role.Ref.ID()
	cases := []struct {
		name    string
		item    plan.Item
		pre     precondition
		adopted bool
	}{
		{"plain", cm, precondition{}, false},
		{"to be made", cm, precondition{absent: true}, false},
		{"to be changed", cm, precondition{uid: "u-1", resourceVersion: "7"}, false},
		{"adopted", cm, precondition{}, true},
		{"with an expression and ignored paths", whole, precondition{uid: "u-1"}, false},
		{"adopted, with an expression and ignored paths", whole, precondition{uid: "u-1"}, true},
		{"in no namespace", zone, precondition{}, false},
		{"with every separator in its name", role, precondition{}, false},
		{"in another cluster", cm, precondition{}, false},
		{"of a removal", cm, precondition{}, true},
	}
	var out bytes.Buffer
	for i := range cases {
		c := &cases[i]
		owner, ok := goldenOwners[c.name]
		if !ok {
			owner = me
		}
		b, err := applyPatch(json.RawMessage(manifest), &c.item, owner, c.pre, c.adopted, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s: %s\n", c.name, b)
	}
	golden.Equal(t, "marks.txt", out.Bytes())
}

// Each owner claims the objects with its mark, even if spec.adopt is Never. Other owners do not.
func TestGoldenMarksAreRead(t *testing.T) {
	for line := range strings.Lines(string(golden.Read(t, "marks.txt"))) {
		name, text, _ := strings.Cut(line, ": ")
		var u unstructured.Unstructured
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		owner, ok := goldenOwners[name]
		if !ok {
			owner = me
		}
		want := appsv1.EntryApplied
		if strings.HasPrefix(name, "adopted") || name == "of a removal" {
			want = appsv1.EntryAdopted
		}
		mark, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
		key, parsed := plan.ParseOwnerKey(mark.Owner)
		if err != nil || !parsed || key != owner {
			t.Errorf("%s: the mark is parsed as %+v, %v", name, mark, err)
		}
		ref, err := stacks.ParseID(mark.ID)
		if err != nil {
			t.Fatal(err)
		}
		if state, err := claim(owner, ref, &appsv1.InventoryEntry{}, appsv1.AdoptNever,
			&u); err != nil || state != want {
			t.Errorf("%s: claimed as %q, %v", name, state, err)
		}
		if state, err := claim(other, ref, &appsv1.InventoryEntry{}, appsv1.AdoptAlways, &u); err == nil {
			t.Errorf("%s: another owner claims it as %q", name, state)
		}
	}
}

// recorder is a client that records patches, and returns an error for each.
type recorder struct {
	dynamic.NamespaceableResourceInterface
	err error
	// version is the resourceVersion of the objects.
	version string
	out     bytes.Buffer
}

func (r *recorder) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return r
}

func (r *recorder) Namespace(string) dynamic.ResourceInterface { return r }

func (r *recorder) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	u := existing(objectMeta{})
	u.SetResourceVersion(r.version)
	return u, nil
}

func (r *recorder) Patch(_ context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions,
	_ ...string) (*unstructured.Unstructured, error) {
	fmt.Fprintf(&r.out, "%s of %s by %s, force %v: %s\n", kind, name, o.FieldManager, o.Force != nil && *o.Force, data)
	return nil, r.err
}

// These patches write marks without a manifest, and the annotations of shared namespaces.
func TestGoldenPatches(t *testing.T) {
	_, discovery := newAPIServer()
	r := &recorder{}
	a := New(Options{}).newExecutor(Pass{Client: &Client{Interface: r}, Target: &Target{Discovery: discovery},
		Owner: &ReadOnlyOwner{OwnerKey: me, Entries: plan.NewInventory(nil, nil)}})
	ctx := t.Context()
	namespace := plan.Item{Object: sharedNamespace("apps"), Mapping: &meta.RESTMapping{Resource: namespaceResource}}
	namespace.ID = namespace.Ref.ID()
	marked := goldenEntry(1)
	nobody := func(stacks.Ref, *unstructured.Unstructured) string { return "" }

	r.err = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "apps", errors.New("it exists"))
	a.shareNamespace(ctx, &plan.Action{Verb: plan.VerbCreate, Item: &namespace})
	r.version = "7"
	a.tryUnshareNamespace(ctx, &plan.Action{Verb: plan.VerbRelease, Message: "it stays"}, namespace.Ref, r)
	r.version = ""
	r.err = apierrors.NewServiceUnavailable("down")
	a.handOver(ctx, &plan.Action{Verb: plan.VerbHandOver, Entry: marked, HandoverTo: &other}, ref("a"), r)
	a.handOver(ctx, &plan.Action{Verb: plan.VerbHandOver, Entry: numbered(1), HandoverTo: &other}, ref("a"), r)
	a.release(ctx, &plan.Action{Verb: plan.VerbRelease, Entry: marked}, ref("a"), r, marked.UID)
	taken := entry("a", appsv1.EntryIntended)
	taken.UID = "uid"
	if res := a.claimRecordedObject(ctx, &taken, nobody); !errors.Is(res.err, r.err) {
		t.Errorf("the patch that claims an object was not sent: %+v", res)
	}
	golden.Equal(t, "patches.txt", r.out.Bytes())
}

func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	for _, c := range [][2]string{{"LocalCluster", plan.LocalCluster}, {"InventoryOfLabel", InventoryOfLabel},
		{"createdByAnnotation", createdByAnnotation}, {"usedByPrefix", usedByPrefix}, {"sharedHash", sharedHash}} {
		fmt.Fprintf(&out, "%s = %s\n", c[0], c[1])
	}
	golden.Equal(t, "names.txt", out.Bytes())
}
