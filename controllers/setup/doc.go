// Package setup adds the reconcilers of this project to a controller-runtime manager of another
// program:
//
//	c, err := setup.New(ctx, mgr, setup.Options{
//		OwnerID: "example", Namespace: "example-system", StoragePath: dir,
//	})
//	…
//	err = c.AddInstalls(ctx)
//
// AddInstalls is sufficient if Flux fetches the sources. AddSources is for clusters without Flux;
// call it before AddInstalls if installs publish artifacts. AddRemovals is for KsctlRemove,
// AddImports for ImportState, AddExports for ExportState, AddClusters for KsctlCluster and
// AddAutoScalers for KsctlAutoScaler. The scheme of the manager needs the types of AddToScheme, the
// cluster needs the CRDs of config/crd, and the account of the manager needs the permissions of
// config/rbac. Call each method at most once, before the manager starts.
package setup
