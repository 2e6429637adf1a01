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

	"github.com/ksctl/gitops/stacks"
)

// pages is an API server that has a definition and so many objects of it, and gives
// out no more of them at once than it is asked for.
type pages struct {
	dynamic.NamespaceableResourceInterface
	count int
	asked []int64
}

func (p *pages) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return p
}
func (p *pages) Namespace(string) dynamic.ResourceInterface { return p }

func (p *pages) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	crd := apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "g.io",
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}}}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&crd)
	return &unstructured.Unstructured{Object: o}, err
}

func (p *pages) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	p.asked = append(p.asked, opts.Limit)
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
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{"apiVersion": "g.io/v1", "kind": "Widget",
			"metadata": map[string]any{"namespace": "ns", "name": fmt.Sprint(i), "uid": "uid"}}})
	}
	if to < p.count {
		list.SetContinue(strconv.Itoa(to))
		list.SetRemainingItemCount(ptr.To(int64(p.count - to)))
	}
	return list, nil
}

// A definition goes when all of its objects are the owner's, however many there are;
// those of others are counted, wherever they stand.
func TestOthersObjectsOnManyPages(t *testing.T) {
	const count = 2*pageSize + 100
	ref := stacks.Ref{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition", Name: "widgets.g.io"}
	for others, examples := range map[int][]string{0: nil, 3: {"ns/1097", "ns/1098", "ns/1099"}, 601: {"ns/499", "ns/500", "ns/501", "ns/502", "ns/503"}} {
		server := &pages{count: count}
		a := &actor{engine: New(Options{}), owner: widgetsOf(count - others), client: &Client{Interface: server}}
		err := a.othersObjects(t.Context(), &Action{Verb: Delete}, ref)
		var found *CustomResourcesError
		switch {
		case others == 0 && err != nil, others > 0 && !errors.As(err, &found):
			t.Errorf("%d of others: %v", others, err)
		case others > 0 && (found.Count != int64(others) || !slices.Equal(found.Examples, examples) || found.Stay):
			t.Errorf("%d of others: %v", others, err)
		}
		if !slices.Equal(server.asked, []int64{pageSize, pageSize, pageSize}) {
			t.Errorf("asked for %v", server.asked)
		}
	}
}
