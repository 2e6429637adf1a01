// Package catalog contains the stacks that the controller ships. A released version never changes:
// installs reference the version, so that an upgrade of the controller changes none of them. Other
// versions come from the OCI repository of the catalog, as <repository>/<stack>:<version>.
package catalog
