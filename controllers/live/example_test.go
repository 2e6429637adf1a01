package live_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// An index watches the objects that carry the mark of an owner.
func ExampleIndex() {
	watch := func(ctx context.Context, cfg *rest.Config, deployments *meta.RESTMapping) error {
		index, err := live.New(cfg, live.Options{OwnerID: "example"})
		if err != nil {
			return err
		}
		web := stacks.Ref{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
		index.Subscribe(func(owner string) {
			if o, found := index.Get(web); found {
				fmt.Println(owner, o.Ref, o.Readiness, o.Message)
			}
		})
		index.SetOwnerKinds("example/local/Site/shop/web", []*meta.RESTMapping{deployments})
		return index.Start(ctx) // until ctx is done
	}
	_ = watch
}
