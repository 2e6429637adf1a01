// Command watch prints the Ready condition of all installs when it changes, with the generated
// clients. With -for it exits when one install is ready, for pipelines.
//
//	go run ./watch
//	go run ./watch -for shop/shop
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/client/clientset/versioned"
	"github.com/ksctl/gitops/api/client/informers/externalversions"
)

func main() {
	until := flag.String("for", "", "Exit when the install namespace/name is ready.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := connectAndWatch(ctx, *until)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func connectAndWatch(ctx context.Context, until string) error {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return watch(ctx, os.Stdout, clients, until)
}

// watch prints a line per change until ctx is done, or until the install named until is ready.
func watch(ctx context.Context, out io.Writer, clients versioned.Interface, until string) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	// The informer calls a handler from one goroutine, so the map needs no lock.
	last := map[string]string{}
	printChange := func(o any) {
		in := o.(*appsv1.KsctlInstall)
		key, line := in.Namespace+"/"+in.Name, describe(in)
		if last[key] != line {
			last[key] = line
			fmt.Fprintln(out, key, line)
		}
		if key == until && ready(in) {
			done()
		}
	}
	_, err := factory.Apps().V1().KsctlInstalls().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    printChange,
		UpdateFunc: func(_, o any) { printChange(o) },
		DeleteFunc: func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				delete(last, key)
				fmt.Fprintln(out, key, "deleted")
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // waits until the handler has returned
	return nil
}

// describe returns the Ready condition of an install as one line.
func describe(in *appsv1.KsctlInstall) string {
	c := meta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if c == nil {
		return "not reconciled yet"
	}
	return fmt.Sprintf("Ready=%s %s: %s", c.Status, c.Reason, c.Message)
}

// ready reports whether the current spec is installed. A condition of an older generation does not
// count.
func ready(in *appsv1.KsctlInstall) bool {
	return in.Status.ObservedGeneration == in.Generation &&
		meta.IsStatusConditionPresentAndEqual(in.Status.Conditions, appsv1.ReadyCondition, metav1.ConditionTrue)
}
