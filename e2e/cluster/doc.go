// Package cluster runs a real Kubernetes control plane on loopback for a test
// suite: etcd, kube-apiserver with RBAC and ServiceAccount admission,
// kube-controller-manager, kube-scheduler, and kwok with fake nodes on which
// pods become Ready without running.
//
//	c, err := cluster.Start(ctx, cluster.Options{CRDPaths: []string{"../../config/crd"}, Audit: true})
//	...
//	defer c.Stop()
//
// The programs come from package tools, which builds what is missing.
//
// The rig starts the programs itself instead of through controller-runtime's
// envtest, because envtest's children outlive a test process that is killed,
// and their port and certificates can't be chosen. Here each child dies with
// the process that started it (Linux), and wherever that isn't possible the
// next start finds and ends it by its pid file. Nothing reads or writes
// ~/.kube/config, and everything that a run writes is in one folder under
// os.TempDir, which Stop removes. With the environment variable KSCTL_E2E_KEEP
// set it stays, until the next start without it.
//
// # Fates
//
// Fake pods become Ready, and pods of a Job succeed. An annotation on the pod
// changes that; see [FateAnnotation].
package cluster
