// Package kubeconfig reads kubeconfigs that others wrote. What would run a program, read a
// file of this process, or trust whoever answers, is refused; of the rest, no more is
// kept than what reaches one cluster.
package kubeconfig
