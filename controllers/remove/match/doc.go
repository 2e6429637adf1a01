// Package match tells whether an object of the cluster is one that a stack put
// there by way of the ksctl CLI, kubectl or Helm, and nobody else's. It is pure:
// it is given the rendered object and the live one.
package match
