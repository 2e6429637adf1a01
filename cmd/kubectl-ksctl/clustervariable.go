package main

import (
	"context"
	"errors"
	"fmt"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
)

// cluster returns the KsctlCluster of an install in the files; nil if there is none.
func (o *renderOptions) cluster(install *checkout.Install) (*clusterv1.KsctlCluster, error) {
	var found *clusterv1.KsctlCluster
	for i := range o.clusters {
		c := &o.clusters[i]
		if !install.InstallsOn(c) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("KsctlClusters %s and %s are both for the install; give the file of one of them",
				found.Name, c.Name)
		}
		found = c
	}
	if found != nil && found.Namespace == "" {
		found.Namespace = install.Namespace
	}
	return found, nil
}

// renderWithFacts renders with the facts of the KsctlCluster of an install. If there is none, a
// stack that reads them is refused: the controller would render other objects.
func (o *renderOptions) renderWithFacts(ctx context.Context, install *checkout.Install,
	cluster *clusterv1.KsctlCluster, req stacks.Request) (stacks.Result, error) {
	render := func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		return stacks.RenderWithDecryption(ctx, req, o.keys.open, stacks.Render)
	}
	if cluster != nil {
		variable, err := stacks.ClusterVariable(cluster)
		if err != nil {
			return stacks.Result{}, err
		}
		var paths [][]string
		return stacks.RenderWithFacts(ctx, req, variable, &paths, render)
	}
	if install.Spec.ClusterRef == nil && install.Spec.ClusterSelector == nil {
		return render(ctx, req)
	}
	req.Cluster = &stacks.ClusterFacts{}
	result, err := render(ctx, req)
	if _, reads := errors.AsType[*stacks.MissingFactsError](err); reads {
		return result, errors.New("the stack reads the variable cluster: give the KsctlCluster of the install with " +
			"-f FILE")
	}
	return result, err
}
