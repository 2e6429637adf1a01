// Command client uses the generated clients of the kind Gadget in a namespace.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"example.com/library/gadgets/clientset/versioned"
	"example.com/library/gadgets/informers/externalversions"
	gadgetsv1 "example.com/library/gadgets/v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := externalversions.NewSharedInformerFactoryWithOptions(clients, 0,
		externalversions.WithNamespace(namespace))
	informer := factory.Shops().V1().Gadgets()
	changed := make(chan *gadgetsv1.Gadget, 1000)
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed <- o.(*gadgetsv1.Gadget) },
		UpdateFunc: func(_, o any) { changed <- o.(*gadgetsv1.Gadget) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	if err := create(ctx, clients, namespace); err != nil {
		return err
	}
	if err := await(ctx, changed, func(g *gadgetsv1.Gadget) bool {
		return apimeta.IsStatusConditionTrue(g.Status.Conditions, "Ready") &&
			ptr.Deref(g.Status.URL, "") == "http://a.example.com" && g.Status.StackVersion == "1.2.3"
	}); err != nil {
		return err
	}

	gadgets := clients.ShopsV1().Gadgets(namespace)
	scale, err := gadgets.GetScale(ctx, "one", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 3
	if _, err := gadgets.UpdateScale(ctx, "one", scale, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := await(ctx, changed, func(g *gadgetsv1.Gadget) bool {
		return ptr.Deref(g.Spec.Replicas, 0) == 3 && ptr.Deref(g.Status.Replicas, 0) == 3
	}); err != nil {
		return err
	}
	cached, err := informer.Lister().Gadgets(namespace).Get("one")
	if err != nil {
		return err
	}
	older, err := clients.ShopsV1alpha1().Gadgets(namespace).Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("cached: %s, in the older version: %s\n", cached.Spec.Greeting, older.Spec.Greeting)
	return gadgets.Delete(ctx, "one", metav1.DeleteOptions{})
}

// create creates an object with a value in each kind of field, and checks that the API server has
// all of them, and has set the defaults.
func create(ctx context.Context, clients versioned.Interface, namespace string) error {
	spec := gadgetsv1.GadgetSpec{Greeting: "hi", X: "dash", Bounded: ptr.To[int64](-2),
		Replicas: ptr.To[int32](0), Ratio: 0.5, Offset: ptr.To(0.0), Enabled: ptr.To(false), Mode: "Safe",
		Note: ptr.To(""), Port: ptr.To(intstr.FromString("http")), Labels: map[string]string{"a": "b"},
		Values:    &apiextensionsv1.JSON{Raw: []byte(`{"deep":{"list":[1,"two"]}}`)},
		Anything:  &apiextensionsv1.JSON{Raw: []byte(`[true]`)},
		Odd:       &apiextensionsv1.JSON{Raw: []byte(`{"a,b":"c"}`)},
		Zones:     ptr.To([]string{}),
		Empty:     &gadgetsv1.GadgetSpecEmpty{},
		Hosts:     []gadgetsv1.GadgetSpecHostsItem{{Name: "a.example.com", PathPrefix: ptr.To("/"), Names: []*string{nil}}},
		Limits:    map[string]gadgetsv1.GadgetSpecLimitsValue{"max": {CPU: ptr.To(intstr.FromInt32(2))}},
		FooBar:    ptr.To("with a dash"),
		FooBar2:   ptr.To("without"),
		DeepCopy2: ptr.To("a field"),
		Func:      ptr.To("a keyword"),
		X9lives:   ptr.To("a digit"),
		Host:      &gadgetsv1.GadgetSpecHost{SItem: &gadgetsv1.GadgetSpecHostSItem{A: ptr.To("a")}},
		HostSItem: &gadgetsv1.GadgetSpecHostSItem2{B: ptr.To("b")},
	}
	created, err := clients.ShopsV1().Gadgets(namespace).Create(ctx, &gadgetsv1.Gadget{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(created.DeepCopy().Spec, spec) {
		return fmt.Errorf("the API server has %+v, not %+v", created.Spec, spec)
	}
	second, err := clients.ShopsV1().Gadgets(namespace).Create(ctx, &gadgetsv1.Gadget{
		ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: gadgetsv1.GadgetSpec{Greeting: "hi", Hosts: spec.Hosts}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if s := second.Spec; !ptr.Deref(s.Enabled, false) || ptr.Deref(s.Replicas, 0) != 1 || len(*s.Zones) != 2 {
		return fmt.Errorf("the API server has set other defaults: %+v", s)
	}
	if err := clients.ShopsV1().Gadgets(namespace).Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return nil
}

// await waits until a changed object satisfies a condition.
func await(ctx context.Context, changed <-chan *gadgetsv1.Gadget, condition func(*gadgetsv1.Gadget) bool) error {
	var last *gadgetsv1.Gadget
	for {
		select {
		case last = <-changed:
			if last.Name == "one" && condition(last) {
				return nil
			}
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fmt.Errorf("last seen: %+v", last))
		}
	}
}
