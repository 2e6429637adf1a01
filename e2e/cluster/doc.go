// Package cluster runs a real Kubernetes control plane on loopback for a test suite: etcd,
// kube-apiserver with RBAC and ServiceAccount admission, kube-controller-manager, kube-scheduler,
// and kwok with fake nodes on which pods become Ready without running.
//
//	c, err := cluster.Start(ctx, cluster.Options{
//		CRDPaths: []string{"../../config/crd"}, Audit: true,
//	})
//	...
//	defer c.Stop()
//
// The programs come from package tools, which builds the missing ones.
//
// It starts the programs itself and not through controller-runtime's envtest, because
// envtest's child processes outlive a killed test process, and their port and certificates can't be
// chosen. Here each child dies with the process that started it (Linux); on other systems the next
// start finds it by its pid file and kills it. Nothing reads or writes ~/.kube/config. A run writes
// only to one folder under os.TempDir, which Stop removes. If the environment variable
// KSCTL_E2E_KEEP is set, the folder stays until the next start without the variable.
//
// # Fates
//
// By default, pods on fake nodes become Ready, and pods of a Job succeed. An annotation on the pod
// changes that; see [FateAnnotation].
package cluster
