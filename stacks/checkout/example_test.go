package checkout_test

import (
	"fmt"
	"log"

	"github.com/ksctl/gitops/stacks/checkout"
)

// A checkout has the stacks and the installs of a repository.
func ExampleOpen() {
	c, err := checkout.Open("../../examples/standalone")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, stack := range c.Stacks {
		fmt.Println("stack", stack)
	}
	for i := range c.Installs {
		in := &c.Installs[i]
		fmt.Println("install", in.Namespace+"/"+in.Name, "of stack", in.Spec.Stack)
	}
	// Output:
	// stack stacks/shop/stack.yaml
	// install shop/shop of stack shop
	// install shop/shop of stack shop
}
