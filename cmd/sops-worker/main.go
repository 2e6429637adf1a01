// Command sops-worker decrypts or encrypts one file for the controller. It reads a request as JSON
// from standard input and writes the response to standard output. It is not for users, who can run
// kubectl ksctl state or sops.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ksctl/gitops/internal/sopsworker"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

func main() {
	handlers := sopsworker.Handlers{Decrypt: codec.Decrypt, Encrypt: codec.Encrypt}
	if err := sopsworker.Serve(context.Background(), os.Stdin, os.Stdout, handlers); err != nil {
		fmt.Fprintln(os.Stderr, "sops-worker:", err)
		os.Exit(1)
	}
}
