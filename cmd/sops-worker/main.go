// Command sops-worker decrypts or encrypts one file for the controller: a request as JSON on
// standard input, the answer on standard output. People have kubectl ksctl state, or sops.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ksctl/gitops/internal/sopsworker"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

func main() {
	work := sopsworker.Work{Decrypt: codec.Decrypter(codec.Options{}), Encrypt: codec.Encrypter(codec.Limits{})}
	if err := sopsworker.Serve(context.Background(), os.Stdin, os.Stdout, work); err != nil {
		fmt.Fprintln(os.Stderr, "sops-worker:", err)
		os.Exit(1)
	}
}
