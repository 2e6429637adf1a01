// Package kubeconfig reads untrusted kubeconfigs. It refuses a kubeconfig that would run a program,
// read a local file or skip the verification of the server. It keeps only what is needed to access
// one cluster.
package kubeconfig
