// Command minimart changes the replicas of a Minimart with a typed client, and waits until the
// change is installed. Minimart is the kind of a stack, see docs/minimart.md.
//
//	go run ./minimart -namespace shop -name corner -min-replicas 3
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func main() {
	var key client.ObjectKey
	flag.StringVar(&key.Namespace, "namespace", "default", "The namespace of the Minimart.")
	flag.StringVar(&key.Name, "name", "", "The name of the Minimart.")
	minReplicas := flag.Int("min-replicas", 1, "The number of replicas: the smallest one with autoscaling.")
	timeout := flag.Duration("timeout", 5*time.Minute, "How long to wait until the Minimart is ready.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	err := scale(ctx, key, int32(*minReplicas))
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// newClient returns a client for the cluster of the kubeconfig.
func newClient() (client.Client, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Minimart{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return client.New(cfg, client.Options{Scheme: scheme})
}

// scale sets the number of replicas, and waits until the object is ready.
func scale(ctx context.Context, key client.ObjectKey, replicas int32) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	m := &Minimart{}
	if err := c.Get(ctx, key, m); err != nil {
		return err
	}
	before := m.DeepCopyObject().(*Minimart)
	m.setReplicas(replicas)
	if err := c.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, m)
		return m.ready(), err
	})
	if err != nil {
		return fmt.Errorf("waiting until Minimart %s is ready: %w: %s", key, err, m.readyMessage())
	}
	fmt.Printf("Minimart %s has %d replicas at %s\n", key, replicas, m.Status.URL)
	return nil
}

func (m *Minimart) setReplicas(n int32) {
	if a := m.Spec.Autoscaling; a != nil && a.Enabled != nil && *a.Enabled {
		a.MinReplicas = &n
		return
	}
	m.Spec.ReplicaCount = &n
}

// ready reports whether the current spec is installed. A condition of an older generation does not
// count.
func (m *Minimart) ready() bool {
	return m.Status.ObservedGeneration == m.Generation && meta.IsStatusConditionTrue(m.Status.Conditions, "Ready")
}

func (m *Minimart) readyMessage() string {
	if c := meta.FindStatusCondition(m.Status.Conditions, "Ready"); c != nil {
		return c.Message
	}
	return "it has no condition Ready"
}
