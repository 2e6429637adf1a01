// Command watch says how installs stand, each time that this changes, with the
// generated clients. With -for it ends when one install is ready, for pipelines.
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
	until := flag.String("for", "", "End when the install namespace/name is ready.")
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

// watch prints a line per change until ctx ends, or until an install is ready.
func watch(ctx context.Context, out io.Writer, clients versioned.Interface, until string) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	// One handler is called by one goroutine, one change after the other.
	last := map[string]string{}
	told := func(o any) {
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
		AddFunc:    told,
		UpdateFunc: func(_, o any) { told(o) },
		DeleteFunc: func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				delete(last, key)
				fmt.Fprintln(out, key, "is gone")
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // waits for the handler
	return nil
}

// describe is the Ready condition on one line.
func describe(in *appsv1.KsctlInstall) string {
	c := meta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if c == nil {
		return "was not looked at yet"
	}
	return fmt.Sprintf("Ready=%s %s: %s", c.Status, c.Reason, c.Message)
}

// ready is true when what the spec says now is installed: a condition of an older
// generation says nothing of it.
func ready(in *appsv1.KsctlInstall) bool {
	return in.Status.ObservedGeneration == in.Generation && meta.IsStatusConditionPresentAndEqual(in.Status.Conditions, appsv1.ReadyCondition, metav1.ConditionTrue)
}
