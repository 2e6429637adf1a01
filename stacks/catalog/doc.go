// Package catalog holds the stacks that the controller ships. A version that was
// released once stays as it is: installs name the version, so that upgrading the
// controller changes none of them. Other versions come from the catalogue's
// repository in an OCI registry, as <repository>/<stack>:<version>.
package catalog
