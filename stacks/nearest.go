package stacks

import "github.com/ksctl/gitops/stacks/problem"

// Nearest returns the known name that name was most likely meant to be. It returns an empty string
// if no known name is similar.
func Nearest(name string, known []string) string { return problem.Nearest(name, known) }
