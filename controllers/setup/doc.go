// Package setup puts the reconcilers of our kinds into a manager of
// controller-runtime, for programs that have one of their own:
//
//	c, err := setup.New(ctx, mgr, setup.Options{OwnerID: "example", Namespace: "example-system", StoragePath: dir})
//	…
//	err = c.AddInstalls(ctx)
//
// AddInstalls is enough where Flux fetches the sources. AddSources is for clusters
// without Flux, and before AddInstalls for installs that publish; AddRemovals is for
// KsctlRemove, AddImports for ImportState, AddExports for ExportState, AddClusters for KsctlCluster. The manager's scheme has to know what AddToScheme adds, the cluster the CRDs of config/crd, and the manager's account
// needs the rights of config/rbac. Each method is called once, before the manager starts.
package setup
