// Package install reconciles KsctlInstall: it observes the source, the choices
// and the account, renders the stack, and has the engine make the cluster equal.
package install
