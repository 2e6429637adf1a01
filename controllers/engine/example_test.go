package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// memoryOwner is an owner whose inventory is lost with the process. A real one persists it.
type memoryOwner struct {
	key       plan.OwnerKey
	inventory *plan.Inventory
}

func (o *memoryOwner) Key() plan.OwnerKey            { return o.key }
func (o *memoryOwner) Inventory() *plan.Inventory    { return o.inventory }
func (o *memoryOwner) Policies() plan.Policies       { return plan.DefaultPolicies }
func (o *memoryOwner) Persist(context.Context) error { return nil }
func (o *memoryOwner) Manifest(_ context.Context, it *plan.Item) (json.RawMessage, error) {
	return it.Object.Manifest, nil
}

// A stack is applied to a cluster: repeat the pass when the index reports a change of the owner's
// objects, until the plan is ready.
func ExampleEngine_Reconcile() {
	apply := func(ctx context.Context, cfg *rest.Config, rendered *stacks.Result) error {
		index, err := live.New(cfg, live.Options{OwnerID: "example"})
		if err != nil {
			return err
		}
		changed := make(chan struct{}, 1)
		index.Subscribe(func(string) {
			select {
			case changed <- struct{}{}:
			default: // a pass is due already
			}
		})
		running := make(chan error, 1)
		go func() { running <- index.Start(ctx) }()

		served, err := discovery.NewDiscoveryClientForConfig(cfg)
		if err != nil {
			return err
		}
		client, err := engine.NewClient(cfg)
		if err != nil {
			return err
		}
		target := &engine.Target{ClusterID: plan.LocalCluster, Discovery: engine.NewServerDiscovery(served),
			Index: index}
		owner := &memoryOwner{inventory: plan.NewInventory(nil, nil),
			key: plan.OwnerKey{Installation: "example", Cluster: plan.LocalCluster, Kind: "Site", Namespace: "shop",
				Name: "web"}}
		components := engine.Prepare(ctx, rendered.Components, owner.Policies(), target.Discovery)
		e := engine.New(engine.Options{})
		for {
			report, err := e.Reconcile(ctx, engine.Pass{Owner: owner, Target: target, Client: client,
				Retry: engine.RetryPolicy{Interval: time.Minute, ContestedInterval: time.Hour}}, components)
			if err != nil {
				return err
			}
			for _, c := range report.Changes {
				fmt.Println(c.Verb, c.Ref, c.Message)
			}
			if report.Plan.Ready() {
				return nil
			}
			select {
			case <-changed:
			case err := <-running:
				return err
			}
		}
	}
	_ = apply
}
