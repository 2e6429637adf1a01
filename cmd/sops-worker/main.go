// Command sops-worker decrypts one file for the controller: a request as JSON on standard
// input, the answer on standard output. People have kubectl ksctl state decrypt, or sops.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ksctl/gitops/internal/sopsworker"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

func main() {
	if err := sopsworker.Serve(context.Background(), os.Stdin, os.Stdout, codec.Decrypter(codec.Options{})); err != nil {
		fmt.Fprintln(os.Stderr, "sops-worker:", err)
		os.Exit(1)
	}
}
