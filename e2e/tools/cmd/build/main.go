// Command build makes the programs that end-to-end suites run against, unless
// they are in the cache already, and prints name and path of each.
//
//	go run ./e2e/tools/cmd/build            what the tests run against
//	go run ./e2e/tools/cmd/build -node      and what a real node needs
//	go run ./e2e/tools/cmd/build etcd kwok  only these
//
// It must be run from inside the checkout. Progress goes to standard error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ksctl/gitops/e2e/tools"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node := flag.Bool("node", false, "build kubelet and kube-proxy, too")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = tools.Default()
	}
	if *node {
		names = append(names, tools.Kubelet, tools.KubeProxy)
	}
	paths, err := tools.Build(ctx, os.Stderr, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Printf("%s\t%s\n", name, paths[name])
	}
	return nil
}
