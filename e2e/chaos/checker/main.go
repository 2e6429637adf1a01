// Command checker compares a cluster with the expected content that a chaos run wrote:
//
//	KUBECONFIG=kubeconfig checker expected.json
//
// It prints one difference per line, and its exit code is 1 if there are any.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/chaos/check"
)

func main() {
	differences, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(2)
	}
	for _, d := range differences {
		fmt.Println(d)
	}
	if len(differences) > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) ([]string, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("usage: checker EXPECTED")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var want check.Expected
	if err := json.Unmarshal(data, &want); err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	differences, err := check.Cluster(ctx, c, want)
	if err != nil || len(want.Everything) == 0 {
		return differences, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := check.Kinds(d)
	if err != nil {
		return nil, err
	}
	rest, err := check.Rest(ctx, c, kinds, want)
	return append(differences, rest...), err
}
