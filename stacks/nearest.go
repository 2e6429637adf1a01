package stacks

import "github.com/ksctl/gitops/stacks/problem"

// Nearest is the name among those that are known that was most likely meant; empty
// when none is near.
func Nearest(name string, known []string) string { return problem.Nearest(name, known) }
