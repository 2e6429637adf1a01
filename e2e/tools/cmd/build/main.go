// Command build builds the programs that end-to-end suites run against, unless they are in the
// cache, and prints the name and path of each.
//
//	go run ./e2e/tools/cmd/build            the programs that the tests need
//	go run ./e2e/tools/cmd/build -node      these, kubelet and kube-proxy
//	go run ./e2e/tools/cmd/build etcd kwok  only etcd and kwok
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
	node := flag.Bool("node", false, "also build kubelet and kube-proxy")
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
