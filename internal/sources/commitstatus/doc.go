// Package commitstatus posts the state of the installs that read a KsctlSource as commit statuses
// to GitHub, GitLab and Gitea, as Flux's notification-controller does with its providers of these
// types.
//
// A status is derived from the observed state of an install, never from single events, so only the
// latest state is posted. Posted statuses are kept in memory only: after a restart, each install is
// posted once.
package commitstatus
