package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// pagedServer is a fake API server with a CRD and a number of its objects, which it lists in pages.
type pagedServer struct {
	dynamic.NamespaceableResourceInterface
	count  int
	limits []int64
}

func (p *pagedServer) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return p
}
func (p *pagedServer) Namespace(string) dynamic.ResourceInterface { return p }

func (p *pagedServer) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	crd := apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "g.io",
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}}}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&crd)
	return &unstructured.Unstructured{Object: o}, err
}

func (p *pagedServer) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	p.limits = append(p.limits, opts.Limit)
	from := 0
	if opts.Continue != "" {
		var err error
		if from, err = strconv.Atoi(opts.Continue); err != nil {
			return nil, err
		}
	}
	list := &unstructured.UnstructuredList{}
	to := min(p.count, from+int(opts.Limit))
	for i := from; i < to; i++ {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{"apiVersion": "g.io/v1",
			"kind":     "Widget",
			"metadata": map[string]any{"namespace": "ns", "name": fmt.Sprint(i), "uid": "uid"}}})
	}
	if to < p.count {
		list.SetContinue(strconv.Itoa(to))
		list.SetRemainingItemCount(ptr.To(int64(p.count - to)))
	}
	return list, nil
}

// A CRD may be deleted when all of its objects belong to the owner, on all pages. The objects of
// others are counted on every page.
func TestCheckCustomResourcesReadsAllPages(t *testing.T) {
	const count = 2*pageSize + 100
	ref := stacks.Ref{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition", Name: "widgets.g.io"}
	for others, examples := range map[int][]string{0: nil, 3: {"ns/1097", "ns/1098", "ns/1099"},
		601: {"ns/499", "ns/500", "ns/501", "ns/502", "ns/503"}} {
		server := &pagedServer{count: count}
		a := New(Options{}).newExecutor(Pass{Owner: ownerOfWidgets(count - others), Client: &Client{Interface: server}})
		err := a.checkCustomResources(t.Context(), &plan.Action{Verb: plan.VerbDelete}, ref)
		var found *CustomResourcesError
		switch {
		case others == 0 && err != nil, others > 0 && !errors.As(err, &found):
			t.Errorf("%d of others: %v", others, err)
		case others > 0 && (found.Count != int64(others) || !slices.Equal(found.Examples, examples) || found.Retained):
			t.Errorf("%d of others: %v", others, err)
		}
		if !slices.Equal(server.limits, []int64{pageSize, pageSize, pageSize}) {
			t.Errorf("list requests with limits %v", server.limits)
		}
	}
}
