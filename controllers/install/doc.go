// Package install reconciles KsctlInstall: it reads the source, the settings and the service
// account, renders the stack, and applies the objects to the cluster with the engine.
package install
