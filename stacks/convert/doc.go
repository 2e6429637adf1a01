// Package convert turns Flux Kustomizations, HelmReleases and Argo CD Applications into stacks and
// installs of the same repository. It needs no cluster, and imports neither Flux nor Argo CD: the
// types here have the fields of their specs.
//
// Convert writes nothing before it has compared, object by object, what the libraries of kustomize
// and Helm render with the options of the former tool, and what stacks.Render renders from the
// result. Both sides are compared after these changes:
//
//   - Objects without a namespace get that of the install, and those of cluster-scoped kinds lose it.
//   - Empty labels, annotations and statuses, and what manifest.Normalize removes, do not count.
//   - The marks that Flux and Argo CD put on their objects when they apply them are on neither side.
//   - Test hooks of charts, and hooks that run at a removal, are not applied by an install.
//   - Values that a chart generates on each render are those that differ between two renders of Helm.
package convert
